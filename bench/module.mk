MODULES += bench
bench_USES := store base
bench_LIBS :=
bench_TOOLS += counter_bench
