MODULES += fuse
fuse_USES := namespace store base
fuse_LIBS := -lfuse3
fuse_SBIN := mount.lapis
