#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: a request through the native door costs what docs/targets.md allows: one write of the device for an
# overwrite at depth 1, a tenth at depth 128, a tenth of a system call, no allocation and no mutex of our own.
# Method: bench/daemon-counts, the short form, on a sparse image; it says which limit is broken.
# timeout: 600
# variants: release
set -u
"$LP_TEST_SRC/bench/daemon-counts" --build "$LP_TEST_BUILD" --ops 5000 --compile "$LP_TEST_SRC/tests/system/count_calls.c"
