#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# variants: release asan
# Goal: no fuzzer fails on its seeds, nor on a fixed set of mutations of them; none lacks seeds.
# Method: each program of the build's fuzz directory on its corpus.
set -euo pipefail
found=0
for program in "$LP_TEST_BUILD"/fuzz/*_fuzz; do
	name=$(basename "$program" _fuzz)
	"$program" "$LP_TEST_SRC/tests/fuzz/corpus/$name" 150
	found=$((found + 1))
done
[ "$found" -eq "$(find "$LP_TEST_SRC/tests/fuzz" -maxdepth 1 -name '*_fuzz.c' | wc -l)" ]
[ "$found" -gt 0 ]
