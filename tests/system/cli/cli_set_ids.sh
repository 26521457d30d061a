#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: what somebody else has marked set-user-ID or set-group-ID is not so in a copy that root makes of it,
# by put, get or sync, and a sync once more changes nothing; one's own keeps these bits, and has them with
# its own content only (promise P8). Method: objects and files of user 1000, and root's; one replaced by
# the other between two syncs, and all the time while it is fetched. It needs root.
# timeout: 120
set -u
. "$LP_TEST_SRC/tests/lib.sh"
export LAPIS_ADDRESS=unix:$PWD/sock
export PYTHONPATH=$LP_TEST_SRC/tests/wire PYTHONDONTWRITEBYTECODE=1
[ "$(id -u)" = 0 ] || {
	echo "only root makes files of others"
	exit 77
}

# does ARG...: lapis does it, and says nothing of it.
does()
{
	"$lapis" "$@" >out 2>err || say "lapis $*: exit status $?: $(cat err)"
	[ ! -s err ] || say "lapis $*: noise on standard error: $(cat err)"
}

# make KEY CONTENT UID GID MODE: an object of somebody's, of the time 1000000.
make()
{
	python3 - "$LAPIS_ADDRESS" "$@" <<'CODE' || say "cannot make $1"
import sys
import lapis_wire as wire

key, content, uid, gid, mode = sys.argv[2:]
with wire.Connection(sys.argv[1]) as lapis:
    lapis(wire.put(key, content, uid=int(uid), gid=int(gid), mode=int(mode, 8), mtime_ns=10**15))
CODE
}

# of KEY FIELD...: what an object is.
of()
{
	"$lapis" stat --json "$1" | python3 -c 'import json, sys
attrs = json.load(sys.stdin)
print(*(attrs[name] for name in sys.argv[1:]))' "${@:2}"
}

# file NAME UID:GID MODE CONTENT: one here, of the time 1000000.
file()
{
	echo -n "$4" >"$1"
	chown "$2" "$1"
	chmod "$3" "$1"
	touch -d @1000000 "$1"
}

"$lapis" mkfs --size 512M --shards 2 a.img >out || say "mkfs: $(cat out)"
serve --memory 256M --listen "$LAPIS_ADDRESS" a.img
does mb b
umask 022

# Down: of another user, of another group; one's own.
make b/down/evil evil 1000 1000 4755
make b/down/both evil 1000 1000 6755
make b/down/group evil 0 1000 2755
make b/down/user evil 1000 0 4711
make b/down/own good 0 0 4755
make b/down/owns good 0 0 6751
make b/down/plain evil 1000 1000 640
want='both 755 0:0 evil 755 0:0 group 755 0:0 own 4755 0:0 owns 6751 0:0 plain 640 0:0 user 711 0:0 '
for name in both evil group own owns plain user; do
	mkdir -p got
	does get --times b/down/$name got/$name
done
got=$(cd got && stat -c '%n %a %u:%g' -- * | tr '\n' ' ')
[ "$got" = "$want" ] || say "get --times: $got"
does sync b/down ./down
got=$(cd down && stat -c '%n %a %u:%g' -- * | tr '\n' ' ')
[ "$got" = "$want" ] || say "sync down: $got"
[ "$(cat down/own down/evil down/owns)" = goodevilgood ] || say "sync down: $(head down/*)"
before=$(stat -c '%n %i %a %z' down/*)
does sync b/down ./down
does sync --checksum b/down ./down
[ "$(stat -c '%n %i %a %z' down/*)" = "$before" ] || say "another sync down has changed something: $(stat -c '%n %a %z' down/*)"
# What a former copy has too much goes.
chmod 4755 down/evil down/plain
does sync b/down ./down
got=$(cd down && stat -c '%n %a %u:%g' -- * | tr '\n' ' ')
[ "$got" = "$want" ] || say "bits of a former copy: $got"
# A part is no program.
does get --times --range 0-1 b/down/own part
[ "$(stat -c %a part)" = 755 ] || say "a part has $(stat -c %a part)"
# Large ones, with holes and without.
make b/large x 0 0 4755
truncate -s 20M hollow
echo end >>hollow
chmod 4755 hollow
does put --times hollow b/hollow
does get --times b/hollow hollow.back
cmp hollow hollow.back || say "one with holes came back different"
[ "$(stat -c %a hollow.back)" = 4755 ] || say "one with holes has $(stat -c %a hollow.back)"

# Of the same size and time, and not the same: root's own may have been moved to where another one was.
make b/swap/x evil 1000 1000 755
does sync b/swap ./swap
does rm b/swap/x
make b/swap/x good 0 0 4755
does sync b/swap ./swap
[ "$(cat swap/x) $(stat -c %a swap/x)" = 'good 4755' ] || say "a copy of another one is $(stat -c %A swap/x): $(cat swap/x)"

# What has a name when it is fetched is not what had it when it was looked at.
python3 - "$LAPIS_ADDRESS" "$lapis" <<'CODE' || say "bits of one object on the content of another one"
import os, subprocess, sys, threading
import lapis_wire as wire

ended = threading.Event()

def swap():
    with wire.Connection(sys.argv[1]) as lapis:
        while not ended.is_set():
            for content, uid, mode in ((b"evil", 1000, 0o644), (b"good", 0, 0o4755)):
                lapis(wire.put("b/race", content, uid=uid, gid=uid, mode=mode))
                lapis(wire.delete("b/race"))

thread = threading.Thread(target=swap)
thread.start()
seen = {}
try:
    for _ in range(300):
        subprocess.run([sys.argv[2], "get", "--times", "b/race", "race"], stderr=subprocess.DEVNULL)
        if os.path.exists("race"):
            with open("race", "rb") as file:
                found = (file.read(), os.stat("race").st_mode & 0o6000)
            seen[found] = seen.get(found, 0) + 1
            os.unlink("race")
finally:
    ended.set()
    thread.join()
print(seen)
assert (b"evil", 0o4000) not in seen, seen
assert len(seen) >= 2, seen
CODE

# Up: the same.
mkdir up
file up/evil 1000:1000 4755 evil
file up/both 1000:1000 6755 evil
file up/group 0:1000 2755 evil
file up/user 1000:0 4711 evil
file up/own 0:0 4755 good
file up/owns 0:0 6751 good
file up/plain 1000:1000 640 evil
want='both 0755 evil 0755 group 0755 own 4755 owns 6751 plain 0640 user 0711 '
# modes KEY: of what is below it.
modes()
{
	local name
	for name in both evil group own owns plain user; do
		echo -n "$name $(of "$1/$name" mode) "
	done
}
for name in both evil group own owns plain user; do
	does put --times up/$name b/put/$name
done
[ "$(modes b/put)" = "$want" ] || say "put --times: $(modes b/put)"
does sync ./up b/up
[ "$(modes b/up)" = "$want" ] || say "sync up: $(modes b/up)"
# One that is replaced keeps its mode.
does put --times up/own b/put/plain
[ "$(of b/put/plain mode)" = 0640 ] || say "put --times over another one: $(of b/put/plain mode)"
# versions: of all that is there.
versions()
{
	local name
	for name in both evil group own owns plain user; do
		of "b/up/$name" ino version
	done
}
before=$(versions)
does sync ./up b/up
does sync --checksum ./up b/up
[ "$(versions)" = "$before" ] || say "another sync up has changed something: $(versions), not $before"
[ -z "$("$lapis" sync -n ./up b/up)" ] || say "more to do: $("$lapis" sync -n ./up b/up)"

# Of the same size and time, and not the same, or another user's: it comes anew, as a whole, or not at all.
does rm b/up/own b/up/owns
make b/up/own evil 0 0 755
make b/up/owns evil 1000 1000 6751
rm -r up/both up/evil up/group up/user
chmod 4000 up/own
setpriv --bounding-set -dac_override,-dac_read_search "$lapis" sync --delete ./up b/up >out 2>err &&
	say "what cannot be read was put"
grep -q 'own: Permission denied' err || say "what cannot be read is not named: $(cat err)"
[ "$("$lapis" cat b/up/own) $(of b/up/own mode)" = 'evil 0755' ] || say "a put that failed has changed what was there: $(of b/up/own mode)"
chmod 4755 up/own
[ "$("$lapis" sync -n ./up b/up)" = 'put     own' ] || say "sync -n: $("$lapis" sync -n ./up b/up)"
does sync ./up b/up
[ "$("$lapis" cat b/up/own) $(of b/up/own mode uid gid mtime_ns)" = 'good 4755 0 0 1000000000000000' ] ||
	say "a copy of another one is $(of b/up/own mode uid): $("$lapis" cat b/up/own)"
[ "$("$lapis" cat b/up/owns) $(of b/up/owns mode uid gid)" = 'good 6751 0 0' ] ||
	say "another user's is $(of b/up/owns mode uid): $("$lapis" cat b/up/owns)"
touch -d @0 up/own
chmod 6755 up/own
does sync ./up b/up
[ "$(of b/up/own mode mtime_ns)" = '6755 0' ] || say "of time 0 it has $(of b/up/own mode mtime_ns)"
chmod 755 up/own
does sync ./up b/up
[ "$(of b/up/own mode)" = 0755 ] || say "bits that are gone here are there: $(of b/up/own mode)"
"$lapis" ls -r b/up | grep -F .lapis- && say "sync left something of its own"

finish
