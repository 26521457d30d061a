MODULES += bench
bench_USES := store base
bench_LIBS :=
bench_TOOLS += bdev_bench
bench_TOOLS += mailbox_bench
