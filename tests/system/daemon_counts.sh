#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: a request through the native door costs what docs/targets.md allows: one write of the device for an
# overwrite at depth 1, a tenth at depth 128, a tenth of a system call, no allocation and no mutex of our own;
# and not more than it did.
# Method: bench/regress with the short form of bench/daemon-counts, on a sparse image; it says which limit is
# broken, or which stored value of bench/counts.json.
# timeout: 600
# variants: release
set -u
"$LP_TEST_SRC/bench/regress" daemon --build "$LP_TEST_BUILD"
