#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: what the store asks of its device for each operation is within the limits of
# docs/targets.md: one write through to the log per commit, and so on.
# Method: bench/store-counts, the short form, on a sparse image; it says which limit is broken.
# timeout: 600
# variants: release
set -u
"$LP_TEST_SRC/bench/store-counts" --build "$LP_TEST_BUILD" --ops 2000 --image counts.img
