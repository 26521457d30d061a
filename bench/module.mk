MODULES += bench
bench_USES := store base
bench_LIBS :=
bench_TOOLS += base_bench
bench_TOOLS += bdev_bench
bench_TOOLS += counter_bench
bench_TOOLS += mailbox_bench
