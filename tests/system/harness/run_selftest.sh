#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# variants: release
# Goal: tests/run counts every test and lets no failure through: a crash, a hang, an early exit,
# an empty run, a mount or a process left behind.
# Method: a build directory with one small cmocka program whose fate an environment variable
# decides, and a few scripts; each case is compared with the sum it must print.
set -euo pipefail
run=$LP_TEST_SRC/tests/run
mkdir -p build/release/test scripts none

cat >fate_test.c <<'CODE'
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int is_fate(const char *name)
{
	const char *fate = getenv("FATE");
	return fate != NULL && strcmp(fate, name) == 0;
}

static void test_first(void **state)
{
	(void)state;
}

static void test_fate(void **state)
{
	(void)state;
	if (is_fate("skip")) {
		print_message("skip: no such device\n");
		skip();
	}
	if (is_fate("fail"))
		assert_int_equal(1, 2);
	if (is_fate("abort"))
		abort();
	print_message("# begin test_fate\n");
	if (is_fate("kill"))
		raise(SIGKILL);
	if (is_fate("segv"))
		raise(SIGSEGV);
	if (is_fate("exit"))
		exit(0);
	if (is_fate("hang"))
		pause();
	if (is_fate("status"))
		atexit((void (*)(void))_exit);
}

static int setup(void **state)
{
	(void)state;
	return is_fate("setup") ? -1 : 0;
}

static void leave_with_66(void)
{
	if (is_fate("late"))
		_exit(66);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_first),
		cmocka_unit_test(test_fate),
	};
	if (is_fate("silent"))
		return 0;
	(void)atexit(leave_with_66);
	return cmocka_run_group_tests(tests, setup, NULL);
}
CODE
sed -i '/is_fate("status")/,+1d; s/#include <setjmp.h>/&\n#include <signal.h>/' fate_test.c
gcc -D_GNU_SOURCE -o build/release/test/fate_test fate_test.c -lcmocka

# sums WANT STATUS ARGS...: what tests/run prints last, and how it ends.
sums()
{
	local want=$1 want_status=$2 status=0
	shift 2
	"$run" --build build/release "$@" >out 2>&1 || status=$?
	if [ "$(tail -n 1 out)" != "$want" ] || [ "$status" != "$want_status" ]; then
		echo "FATE=${FATE:-} $*: expected \"$want\" and status $want_status, got $status and:"
		cat out
		exit 1
	fi
}
# says TEXT: the last run's output has it.
says()
{
	if ! grep -qF -- "$1" out; then
		echo "expected in the output: $1"
		cat out
		exit 1
	fi
}
# A killed process may stay as a zombie until its new parent looks.
is_alive()
{
	[ -r "/proc/$1/stat" ] && ! grep -q '^[0-9]* (.*) [ZX]' "/proc/$1/stat"
}
unit()
{
	export FATE=$1
	sums "$2" "$3" --scripts none
}
unit good '2 passed, 0 failed' 0
unit skip '1 passed, 0 failed, 1 skipped' 0
says 'skipped: fate_test: test_fate: no such device'
unit fail '1 passed, 1 failed' 1
says '0x1 != 0x2'
unit abort '1 passed, 1 failed' 1
says 'killed by SIGABRT in test 2'
unit kill '1 passed, 1 failed' 1
says 'killed by SIGKILL in test_fate'
unit segv '1 passed, 1 failed' 1
unit exit '1 passed, 1 failed' 1
says '1 of 2 tests did not run'
unit late '2 passed, 1 failed' 1
says 'exit status 66'
unit setup '0 passed, 1 failed' 1
unit silent '0 passed, 1 failed' 1
says 'ran no test'
FATE=hang
sums '1 passed, 1 failed' 1 --scripts none --timeout 1
says 'still running after 1 s, in test_fate'
# Where it hangs, if this machine lets gdb look into a process that is not its child.
sleep 1000 &
if gdb -nx -batch -p $! -ex backtrace 2>&1 </dev/null | grep -q nanosleep; then
	says 'in test_fate ()'
fi
kill $!
unset FATE

script()
{
	cat >"scripts/$1"
}
# shellcheck disable=SC2016
script good.sh <<<'[ "$PWD" = "$LP_TEST_SCRATCH" ] && [ -z "$(ls -A)" ] && touch "$LP_TEST_SCRATCH/x"'
sums '1 passed, 0 failed' 0 --scripts scripts --filter good
script bad.sh <<<'echo the reason; exit 3'
sums '0 passed, 1 failed' 1 --scripts scripts --filter bad
says 'the reason'
says 'exit status 3'
script skip.sh <<<'echo first; echo no loop devices; exit 77'
sums '1 passed, 0 failed, 1 skipped' 0 --scripts scripts --filter 'skip|good'
says 'skipped: system/skip.sh: no loop devices'
sums '0 passed, 1 failed, 1 skipped' 1 --scripts scripts --filter skip.sh
sums '0 passed, 1 failed' 1 --scripts scripts --filter no-such-name
script python.py <<<'import sys; sys.exit(0)'
sums '1 passed, 0 failed' 0 --scripts scripts --filter python
script other.sh <<<'# variants: asan'
sums '0 passed, 1 failed' 1 --scripts scripts --filter other
# A hang ends with everything it started in its group.
script hang.sh <<<'# timeout: 1
trap "" TERM
sleep 1000 & echo $! >'"$PWD"'/pid; wait; wait'
sums '0 passed, 1 failed' 1 --scripts scripts --filter hang
says 'still running after 1 s'
if is_alive "$(cat pid)"; then
	echo "a process of hang.sh survived"
	exit 1
fi
# The same when a script ends and forgets a process.
script forget.sh <<<'sleep 1000 & echo $! >'"$PWD"'/pid'
sums '1 passed, 0 failed' 0 --scripts scripts --filter forget
sleep 0.1
if is_alive "$(cat pid)"; then
	echo "a process of forget.sh survived"
	exit 1
fi
# Whoever stops the runner stops what it runs.
script slow.sh <<<'sleep 1000 & echo $! >'"$PWD"'/pid; wait'
rm -f pid
"$run" --build build/release --scripts scripts --filter slow >out 2>&1 &
runner=$!
while [ ! -s pid ]; do
	sleep 0.05
done
kill -TERM "$runner"
if wait "$runner"; then
	echo "a runner that was stopped reports success"
	exit 1
fi
if is_alive "$(cat pid)"; then
	echo "a process survived its stopped runner"
	exit 1
fi
# Also what it was just starting.
python3 - "$run" <<'CODE'
import importlib.machinery, importlib.util, signal, subprocess, sys
loader = importlib.machinery.SourceFileLoader("run", sys.argv[1])
run = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", loader))
loader.exec_module(run)
running = run.Running()
running.stop()
process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
running.add(process.pid)
assert process.wait(60) == -signal.SIGTERM
CODE
# No scratch directory stays: ours is TMPDIR of the runs above.
if compgen -G 'lp-*' >/dev/null; then
	echo "scratch directories left:" lp-*
	exit 1
fi
# Output that never ends is cut in the report.
script loud.sh <<<'yes no | head -c 10000000; exit 1'
sums '0 passed, 1 failed' 1 --scripts scripts --filter loud
says 'characters left out'
# The summary file has the same sums.
sums '1 passed, 1 failed, 1 skipped' 1 --scripts scripts --filter 'good|bad|skip' --summary sum.json
python3 - <<'CODE'
import json
got = json.load(open("sum.json"))
assert (got["passed"], got["failed"], got["skipped"]) == (1, 1, 1), got
assert got["skips"] == [["system/skip.sh", "no loop devices"]], got
assert len(got["failures"]) == 1, got
CODE
# --list runs nothing.
"$run" --build build/release --scripts scripts --list --filter 'bad|fate' >out
[ "$(cat out)" = 'fate_test
system/bad.sh' ]
# A mount left behind is undone and reported.
if mkdir m && mount -t tmpfs tmpfs m 2>/dev/null; then
	umount m
	script mount.sh <<<'mkdir m && mount -t tmpfs tmpfs m'
	sums '1 passed, 1 failed' 1 --scripts scripts --filter mount
	says 'left a mount behind'
fi
