#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: docs/format/wire.md is enough to write a client from, and lapisd keeps to it, whoever speaks.
# Method: the client in tests/wire/, written from the page alone: page and client agree; every opcode
# and its errors; lists against a model; shared memory; hostile clients; kill -9 under load, 5 times (LP_KILL_ROUNDS,
# LP_KILL_SEED and LP_KILL_CLIENTS say otherwise; make wire-kill: 200, with 8 clients). In memory and
# on an image file, 2 shards.
# timeout: 1800
set -u
cd "$LP_TEST_SCRATCH" || exit 1
wire="$LP_TEST_SRC/tests/wire"
failures=0

run()
{
	if ! python3 "$wire/$1" "${@:2}" >"$1.log" 2>&1; then
		echo "---- $*"
		tail -c 20000 "$1.log"
		failures=$((failures + 1))
	fi
	tail -n 1 "$1.log"
}

run page.py
if [ ! -x "$LP_TEST_BUILD/bin/lapisd" ]; then
	echo "no lapisd: make"
	exit 77
fi
if [ -z "${LP_KILL_ROUNDS:-}" ]; then
	run opcodes.py both
	run listing.py both
	run shared.py block
	# It looks at the door, not at the store.
	run hostile.py mem
fi
run kill.py "${LP_KILL_ROUNDS:-5}" "${LP_KILL_SEED:-1}" "${LP_KILL_CLIENTS:-4}"
[ "$failures" = 0 ]
