MODULES += store
# In their order: a room uses only itself and those before it (scripts/checks/rooms).
store_ROOMS := record device device/sim space volume log blockfs kvfs index setup extmap commit shard writepath
store_ROOMS += . cache nodes block/core block/read block/write block memstore filestore salvage check model
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
TEST_LDFLAGS_store/filestore/filestore_test := -Wl,--wrap=fstatvfs,--wrap=syncfs
