# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What system tests that call `lapis` share; they begin with `. "$LP_TEST_SRC/tests/lib.sh"` and end
# with `finish`. A daemon that is left then is ended; who has more to take away sets an EXIT trap of its own, with
# end_daemon in it.
lapis="$LP_TEST_BUILD/bin/lapis"
failures=0
daemon= # the lapisd that serve() has started and end_daemon() not ended

say()
{
	echo "FAIL: $*"
	failures=$((failures + 1))
}

# expect STATUS PATTERN ARG...: runs lapis; the files out and err are what it said. Checks the exit
# status, that one of them matches the pattern, and that errors are one line that begins with
# "lapis: ": none after a success, and one when there is no other output.
expect()
{
	local status=$1 pattern=$2
	shift 2
	"$lapis" "$@" >out 2>err
	local got=$?
	[ "$got" = "$status" ] || say "lapis $*: exit status $got, not $status: $(cat out err)"
	cat out err | grep -Eq -- "$pattern" || say "lapis $*: no '$pattern' in: $(cat out err)"
	if [ "$status" = 0 ]; then
		[ ! -s err ] || say "lapis $*: noise on standard error: $(cat err)"
	elif [ -s err ] || [ ! -s out ]; then
		[ "$(wc -l <err)" = 1 ] || say "lapis $*: not one line: $(cat err)"
		grep -q '^lapis: ' err || say "lapis $*: does not say who speaks: $(cat err)"
	fi
}

# serve ARG...: starts lapisd and waits until it is ready; the test is over if it never is. What it
# says is in d.out and d.err.
serve()
{
	local i
	rm -f d.out # the last one's says "ready" as well
	"$LP_TEST_BUILD/bin/lapisd" "$@" >d.out 2>d.err &
	daemon=$!
	for ((i = 0; i < 1200; i++)); do
		grep -qs '^lapisd: ready$' d.out && return
		kill -0 "$daemon" 2>/dev/null || break
		sleep 0.05
	done
	say "lapisd $*: not ready: $(cat d.err)"
	exit 1
}

# end_daemon [SIGNAL]: and waits for its end, which is a good one after TERM. Without a signal it is
# killed, if there is one: at the end of a test, whatever happened.
end_daemon()
{
	local signal=${1:-KILL} status=0
	[ -n "$daemon" ] || return 0
	kill -"$signal" "$daemon" 2>/dev/null
	wait "$daemon" 2>/dev/null || status=$?
	daemon=
	[ "$signal" = KILL ] || [ "$status" = 0 ] || say "lapisd: exit status $status after $signal: $(tail -n 3 d.err)"
}
trap end_daemon EXIT

finish()
{
	echo "$failures failures"
	[ "$failures" = 0 ]
}
