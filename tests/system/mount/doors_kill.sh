#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: what clients of both doors see, before and after kill -9 of the daemon, can be explained by one order of
# all operations, each of which happens at one moment (promises P1, P2, P3; rules M1, M2); also where the kernel
# remembers names and data, and mappings are among the readers. Method: tests/linear/kills twice, with a few kills;
# `make kills` does a thousand. It needs root and /dev/fuse.
# variants: release
# timeout: 240
set -eu
[ -x "$LP_TEST_BUILD/tools/doors_load" ] || { echo "no doors_load: make tools"; exit 77; }
kills=("$LP_TEST_SRC/tests/linear/kills" --build "$LP_TEST_BUILD" --kills 5 --lives 5 --seed "${LP_KILL_SEED:-1}")
"${kills[@]}"
exec "${kills[@]}" --cached
