MODULES += cli
cli_USES := store client wire base
cli_LIBS := -lblkid
cli_PROGS := lapis
cli_HELPERS := lapis_offline
