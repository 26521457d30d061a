MODULES += store
store_USES := base
store_LIBS := -lrocksdb
