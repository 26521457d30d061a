#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: what lapisd(8) says of signals and exit statuses is what happens, and SIGHUP reloads. Method: the
# lists of the page are read, and each item must have a case here that tries it: SIGHUP before the daemon
# serves, with options that may change and that may not, with a mistake, under nohup, with the log file
# moved away, and from a terminal that is closed.
# timeout: 180
set -u
. "$LP_TEST_SRC/tests/lib.sh"
page=$LP_TEST_SRC/man/lapisd.8
export LAPIS_ADDRESS=unix:$PWD/sock
lapisd="$LP_TEST_BUILD/bin/lapisd"

# items SECTION: what stands in the list of a section of the page, a line each.
items()
{
	sed -n "/^\.Sh $1\$/,/^\.El\$/{s/^\.It \(Dv \)\?//p}" "$page"
}

# logs PATTERN FILE: within ten seconds a line of the log matches.
logs()
{
	local i
	for ((i = 0; i < 200; i++)); do
		grep -Eq -- "$1" "$2" 2>/dev/null && return
		sleep 0.05
	done
	say "no '$1' in $2: $(tail -n 8 "$2")"
}

# reloads FILE: SIGHUP, and the sum that the log tells.
reloads()
{
	local before
	before=$(grep -c ': reloaded: ' "$1" 2>/dev/null)
	kill -HUP "$daemon"
	for ((i = 0; i < 200; i++)); do
		[ "$(grep -c ': reloaded: ' "$1" 2>/dev/null)" -gt "${before:-0}" ] && break
		sleep 0.05
	done
	sum=$(grep ': reloaded: ' "$1" | tail -n 1)
}

# is NAME VALUE: an option of the daemon that runs.
is()
{
	local value
	value=$("$lapis" config get "$1")
	[ "$value" = "$2" ] || say "$1 is $value, not $2"
}

is_clean_end()
{
	local name
	for name in sock pid; do
		[ ! -e "$name" ] || say "$1 leaves $name"
	done
}

configure()
{
	printf '%s\n' "listen = $LAPIS_ADDRESS" 'memory = 128M' "pidfile = $PWD/pid" "log-file = $PWD/log" "$@" >conf
}

case_SIGTERM()
{
	serve --config conf a.img
	"$lapis" put conf b/term || say "put"
	end_daemon TERM
	is_clean_end SIGTERM
	grep -q 'stopped$' log || say "SIGTERM: the log does not say that it stopped"
}

case_SIGINT()
{
	serve --config conf a.img
	end_daemon INT
	is_clean_end SIGINT
}

case_SIGPIPE()
{
	serve --config conf a.img
	kill -PIPE "$daemon"
	"$lapis" put conf b/pipe || say "SIGPIPE ends it"
	end_daemon TERM
}

case_SIGHUP()
{
	local old
	rm -f log
	configure 'slow-ms = 50' 'credits = 100'
	serve --config conf --credits 77 a.img
	"$lapis" put conf b/before || say "put"
	reloads log
	[[ $sum == *'0 options changed, 0 refused, 0 wait'* ]] || say "nothing has changed: $sum"
	is slow-ms 50
	# What may change does; a flag still counts over the file; what has to wait is named.
	configure 'slow-ms = 70' 'credits = 55' 'stop-timeout = 33' 'threads = 1' 'workers = 9'
	reloads log
	[[ $sum == *'2 options changed, 0 refused, 2 wait for the next start'* ]] || say "the sum: $sum"
	is slow-ms 70
	is stop-timeout 33
	is credits 77
	logs 'config: slow-ms is 70 now' log
	logs 'reload: threads can only be set when the daemon starts' log
	logs 'reload: workers can only be set' log
	# What was set meanwhile becomes as the file says.
	"$lapis" config set log-level debug >out || say "config set"
	reloads log
	is log-level info
	# A mistake changes nothing.
	configure 'slow-ms = 90' 'no-such = 5'
	kill -HUP "$daemon"
	logs 'reload: the configuration stays as it was: .*conf:6: ' log
	is slow-ms 70
	rm conf
	kill -HUP "$daemon"
	logs 'the configuration stays as it was: .*No such file' log
	configure
	# Whoever moves the log away finds nothing in it from then on.
	mv log log.1
	old=$(wc -l <log.1)
	reloads log
	logs 'the log file is open again' log
	"$lapis" config set slow-ms 5 >out || say "config set"
	logs 'slow-ms is 5 now' log
	[ "$(wc -l <log.1)" -le $((old + 1)) ] || say "it goes on in the old log: $(tail -n 3 log.1)"
	# A log that cannot be opened: it stays where it is, and says so.
	mv log log.2
	mkdir log
	kill -HUP "$daemon"
	logs 'log-file: .*: the old log file stays open' log.2
	rmdir log
	mv log.2 log
	"$lapis" cat b/before | cmp - <(printf '%s\n' "listen = $LAPIS_ADDRESS" 'memory = 128M' "pidfile = $PWD/pid" \
		"log-file = $PWD/log" 'slow-ms = 50' 'credits = 100') || say "what was put is another thing"
	[ "$(cat pid)" = "$daemon" ] || say "the pidfile: $(cat pid)"
	end_daemon TERM
	is_clean_end SIGHUP

	# While it starts: it waits until the daemon serves. nohup has it ignored: it is not here.
	rm -f log d.out
	nohup "$lapisd" --config conf a.img >d.out 2>d.err &
	daemon=$!
	for ((i = 0; i < 200; i++)); do
		grep -qs 'SigBlk:.*[13579bdf]$' "/proc/$daemon/status" && break
		sleep 0.01
	done
	kill -HUP "$daemon"
	logs ': reloaded: 0 options changed' log
	end_daemon TERM

	# A terminal that is closed.
	rm -f log
	python3 -B - "$lapisd" <<'CODE' || say "a terminal that is closed"
import os
import pty
import sys
import time

pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], [sys.argv[1], "--config", "conf", "a.img"])
said = b""
while b"lapisd: ready" not in said:
    said += os.read(terminal, 1000)
os.close(terminal)


def log():
    with open("log", encoding="utf-8") as file:
        return file.read()


deadline = time.monotonic() + 10
while ": reloaded: " not in log():
    assert time.monotonic() < deadline, log()
    time.sleep(0.02)
assert os.waitpid(pid, os.WNOHANG) == (0, 0), "it has ended"
assert os.system(os.environ["LP_TEST_BUILD"] + "/bin/lapis put conf b/closed") == 0
os.kill(pid, 15)
assert os.waitpid(pid, 0)[1] == 0, "it did not stop"
CODE
	is_clean_end "a closed terminal"
}

# --- Exit statuses ---

case_0()
{
	expect_status 0 --help
	expect_status 0 --version
}

# expect_status STATUS ARG...: of the daemon.
expect_status()
{
	local want=$1 status
	shift
	timeout 60 "$lapisd" "$@" >d.out 2>d.err
	status=$?
	[ "$status" = "$want" ] || say "lapisd $*: exit status $status, not $want: $(cat d.err)"
}

case_1()
{
	expect_status 1 --listen "$LAPIS_ADDRESS" --memory 128M nowhere.img
	expect_status 1 --listen "$LAPIS_ADDRESS" --memory 128M --log-file nowhere/log a.img
	grep -q 'log-file: nowhere/log: No such file' d.err || say "log-file: $(cat d.err)"
	# A second signal while the first one waits for a client who is slow to read what he has asked for.
	serve --config conf a.img
	head -c 60000000 /dev/zero | "$lapis" put - b/large || say "put"
	PYTHONPATH=$LP_TEST_SRC/tests/wire python3 -B - "$LAPIS_ADDRESS" <<'CODE' >held &
import sys
import time

import lapis_wire as wire

with wire.Connection(sys.argv[1]) as lapis:
    lapis.start(wire.get("b/large"))
    print("asked", flush=True)
    time.sleep(30)
CODE
	slow=$!
	logs asked held
	kill -TERM "$daemon"
	logs 'stopping, by signal 15' log
	kill -INT "$daemon"
	wait "$daemon"
	status=$?
	kill "$slow" 2>/dev/null
	wait "$slow" 2>/dev/null
	daemon=
	[ "$status" = 1 ] || say "a second signal: exit status $status"
	grep -q 'stopped at once, by a second signal' log || say "a second signal: $(tail -n 3 log)"
	serve --config conf a.img
	[ "$("$lapis" cat b/large | wc -c)" = 60000000 ] || say "what was acknowledged is gone"
	end_daemon TERM
}

case_2()
{
	expect_status 2 --no-such-option
	expect_status 2 a.img
	expect_status 2 --config nowhere a.img
	configure 'slow-ms = many'
	expect_status 2 --config conf a.img
	configure
}

"$lapis" mkfs --size 512M --shards 2 a.img >out || say "mkfs: $(cat out)"
configure
signals=$(items SIGNALS)
statuses=$(items 'EXIT STATUS')
[ "$(echo "$signals" | wc -w)" = 4 ] || say "signals of the page: $signals"
[ "$(echo "$statuses" | wc -w)" = 3 ] || say "exit statuses of the page: $statuses"
for item in $signals $statuses; do
	if declare -F "case_$item" >/dev/null; then
		"case_$item"
	else
		say "the page says $item, and nothing here tries it"
	fi
done
expect 0 'clean' fsck --deep a.img
finish
