#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: status, numbers and options of a daemon are for other programs to read and change, also over
# TCP; hostile clients, thousands of idle ones and such as read nothing cost a bounded amount of memory
# and hold up nobody (promises P5, P7). Method: tests/wire/admin.py in memory and on an image file,
# tests/wire/idle.py in memory; 2 shards each.
# timeout: 600
set -u
cd "$LP_TEST_SCRATCH" || exit 1
failures=0
for call in "admin.py both" "idle.py mem"; do
	# shellcheck disable=SC2086 # a name and its argument
	if ! TMPDIR=. python3 "$LP_TEST_SRC/tests/wire/"$call >log 2>&1; then
		echo "---- $call"
		tail -c 20000 log
		failures=$((failures + 1))
	fi
	tail -n 1 log
done
[ "$failures" = 0 ]
