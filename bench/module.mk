MODULES += bench
bench_USES := store base
bench_LIBS :=
bench_TOOLS += base_bench
