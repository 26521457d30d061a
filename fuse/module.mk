MODULES += fuse
fuse_USES := namespace store base
fuse_LIBS := -lfuse3
