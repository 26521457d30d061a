#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: what the store asks of its device for each operation is within the limits of
# docs/targets.md: one write through to the log per commit, and so on; and not more than it was.
# Method: bench/regress with the short form of bench/store-counts, on a sparse image; it says which limit is
# broken, or which stored value of bench/counts.json.
# timeout: 600
# variants: release
set -u
"$LP_TEST_SRC/bench/regress" store --build "$LP_TEST_BUILD" --image counts.img
