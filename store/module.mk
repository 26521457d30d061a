MODULES += store
store_USES := base
store_LIBS := -lrocksdb
store_GEN += format/blockfs.h
store_GEN += format/disk.h
store_GEN += format/extmap.h
store_GEN += format/file_store.h
store_GEN += format/inode.h
store_GEN += format/keys.h
store_GEN += format/log.h
store_GEN += format/space.h
store_GEN += format/values.h

# A host's file system can be said to be full.
TEST_LDFLAGS_store/store_file_test := -Wl,--wrap=fstatvfs,--wrap=syncfs
