# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What system tests that call `lapis` share; they begin with `. "$LP_TEST_SRC/tests/lib.sh"` and end
# with `finish`.
lapis="$LP_TEST_BUILD/bin/lapis"
failures=0

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

finish()
{
	echo "$failures failures"
	[ "$failures" = 0 ]
}
