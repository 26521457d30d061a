#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: under load through both doors, with kill -9, stops, mounts, changes of options and checks of all
# data, nothing that was acknowledged is lost, nothing wrong is read, and no descriptor, thread, open file
# or connection is left behind.
# Method: tests/soak, half a minute of it; `make soak` goes on for hours. It needs root and /dev/fuse.
# variants: release
# timeout: 240
set -eu
exec "$LP_TEST_SRC/tests/soak" --build "$LP_TEST_BUILD" --minutes 0.35 --seed "${LP_SOAK_SEED:-1}" --results results
