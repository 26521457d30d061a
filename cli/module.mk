MODULES += cli
cli_ROOMS := . bench storebench offline remote
# fuse: what is mounted, and umount; nothing else of it.
cli_USES := store client wire fuse base
cli_LIBS := -lblkid
cli_PROGS := lapis
cli_HELPERS := lapis_offline
