MODULES += cli
# fuse: for umount, which needs nothing else of it.
cli_USES := store client wire fuse base
cli_LIBS := -lblkid
cli_PROGS := lapis
cli_HELPERS := lapis_offline
