MODULES += cli
cli_USES := store base
cli_LIBS := -lblkid
cli_PROGS := lapis
