#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: a device that hangs, or fails, is told about at once and once, and what is durable is served
# all the while (rule L7, promise P5). Method: tests/wire/health.py on a file that misbehaves, which
# is a FUSE file system with one file (tests/wire/fusefile.py), for 2 shards.
# timeout: 300
set -u
cd "$LP_TEST_SCRATCH" || exit 1
TMPDIR=. python3 "$LP_TEST_SRC/tests/wire/health.py" >log 2>&1
status=$?
[ "$status" = 0 ] || tail -c 20000 log
[ "$status" = 77 ] || tail -n 1 log
exit "$status"
