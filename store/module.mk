MODULES += store
store_USES := base
store_LIBS := -lrocksdb
store_GEN := format/disk.h
