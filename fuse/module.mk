MODULES += fuse
fuse_ROOMS := . kernel ops mount model
fuse_USES := namespace store base
fuse_LIBS := -lfuse3
fuse_HELPERS := lapis_remount
fuse_SBIN := mount.lapis mount.fuse.lapis
