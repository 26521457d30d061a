#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: clients of one user who hold all they get and say nothing lock nobody out (door D12): the
# administration answers within a second, other users keep their rate, a refusal says which limit of
# whom was met. Method: tests/wire/silence.py in memory, 2 shards; as root, for it is several users.
# LP_SILENCE_ROUNDS=7 measures more, LP_SILENCE_RATE=0.9 holds it against what is promised.
# timeout: 600
# variants: release release-nolto
set -u
cd "$LP_TEST_SCRATCH" || exit 1
TMPDIR=. python3 "$LP_TEST_SRC/tests/wire/silence.py" mem >log 2>&1
status=$?
[ "$status" = 0 ] || tail -c 20000 log
grep -a "of [0-9]* a second" log
tail -n 1 log
exit "$status"
