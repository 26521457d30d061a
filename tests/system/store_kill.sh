#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: a store that is killed while it works has every transaction it acknowledged, and of each
# other one all or nothing: with real threads and a real ring, on an image file.
# Method: store_kill kills a child at random moments and judges what it finds, 30 times;
# LP_KILL_ROUNDS and LP_KILL_SEED say otherwise (make store-kill: 1000).
# timeout: 1800
# variants: release asan
set -eu
[ -x "$LP_TEST_BUILD/tools/store_kill" ] || { echo "no store_kill: make tools"; exit 77; }
rounds=${LP_KILL_ROUNDS:-30}
seed=${LP_KILL_SEED:-1}
"$LP_TEST_BUILD/bin/lapis" mkfs --size 512M kill.img >/dev/null
if ! "$LP_TEST_BUILD/tools/store_kill" kill.img "$rounds" "$seed" >kill.log; then
	tail -n 3 kill.log
	echo "seed $seed"
	exit 1
fi
# It did something.
awk '{ n = $6 + 0 } END { exit n < 1000 }' kill.log || { tail -n 3 kill.log; exit 1; }
tail -n 1 kill.log
