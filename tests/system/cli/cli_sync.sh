#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: what copies trees and many names loses nothing: a sync removes no directory of the store, or here, unless
# that was asked for and its replacement can be read, two of a name do not become one, a put that failed
# leaves the time of what is there, files get their names when they are durable, a directory that cannot
# be read ends nothing, and -n says what would be done. Method: trees with such things in them; a sync
# is held by its own standard error, a pipe that is full, while something vanishes.
# timeout: 300
set -u
. "$LP_TEST_SRC/tests/lib.sh"
export LAPIS_ADDRESS=unix:$PWD/sock

# A user who may not read everything: root without what lets him.
unprivileged()
{
	if [ "$(id -u)" = 0 ]; then
		setpriv --bounding-set -dac_override,-dac_read_search "$@"
	else
		"$@"
	fi
}

# fails PATTERN COMMAND...: exit status 1, and the pattern in what it said.
fails()
{
	local pattern=$1
	shift
	"$@" >out 2>err
	local got=$?
	[ "$got" = 1 ] || say "$*: exit status $got, not 1: $(cat err)"
	grep -Eq -- "$pattern" err || say "$*: no '$pattern' in: $(cat err)"
}

# does ARG...: lapis does it, and says nothing of it.
does()
{
	"$lapis" "$@" >out 2>err || say "lapis $*: exit status $?: $(cat err)"
	[ ! -s err ] || say "lapis $*: noise on standard error: $(cat err)"
}

# mtime KEY: of an object, in seconds.
mtime()
{
	"$lapis" stat --json "$1" | grep -Eo '"mtime_ns": -?[0-9]+' | grep -Eo -- '-?[0-9]+$'
}

"$lapis" mkfs --size 1G --shards 2 a.img >out || say "mkfs: $(cat out)"
serve --memory 256M --listen "$LAPIS_ADDRESS" a.img
does mb b
echo content >file

# A file or symlink here, a directory of that name there: only --delete removes it.
mkdir up
echo new >up/f
ln -s target up/l
echo other >up/other
there()
{
	does put file b/up/f/deep/1
	does put file b/up/l/deep/1
}
there
fails 'f: is a directory in the store \(--delete replaces it\)' "$lapis" sync ./up b/up
grep -q 'l: is a directory in the store' err || say "a symlink for a directory is not named: $(cat err)"
[ "$(wc -l <err)" = 2 ] || say "not two lines: $(cat err)"
expect 0 content cat b/up/f/deep/1
expect 0 content cat b/up/l/deep/1
expect 0 other cat b/up/other
fails 'f: is a directory in the store' "$lapis" sync -n ./up b/up
[ "$("$lapis" sync -n --delete ./up b/up | LC_ALL=C sort | tr '\n' ' ')" = \
	'put     f put     l remove  b/up/f remove  b/up/l ' ] ||
	say "sync -n --delete: $("$lapis" sync -n --delete ./up b/up)"
expect 0 content cat b/up/f/deep/1
does sync --delete ./up b/up
expect 0 new cat b/up/f
[ -z "$("$lapis" sync -n --delete ./up b/up)" ] || say "more to do: $("$lapis" sync -n --delete ./up b/up)"
# What cannot be read replaces nothing: not a directory, not a symlink.
does rm b/up/f
does put file b/up/f/deep/1
chmod 000 up/f
fails 'f: Permission denied' unprivileged "$lapis" sync --delete ./up b/up
expect 0 content cat b/up/f/deep/1
chmod 644 up/f
does sync --delete ./up b/up
rm up/l
echo file >up/l
chmod 000 up/l
fails 'l: Permission denied' unprivileged "$lapis" sync --delete ./up b/up
expect 0 'symlink' stat b/up/l
chmod 644 up/l
does sync ./up b/up
# A directory here, which cannot be read, a file there; and one that can.
rm up/l
mkdir up/l
echo in >up/l/in
chmod 000 up/l
fails 'l: Permission denied' unprivileged "$lapis" sync --delete ./up b/up
expect 0 '^file$' cat b/up/l
chmod 755 up/l
expect 0 '^remove  b/up/l$' sync -n ./up b/up
grep -qx 'put     l/in' out || say "sync -n of a directory for a file: $(cat out)"
does sync ./up b/up
expect 0 '^in$' cat b/up/l/in
# A symlink takes the place of another one, and of a file.
ln -sfn elsewhere up/link
rm up/other
ln -s first up/other
does sync ./up b/up
ln -sfn second up/link
does sync ./up b/up
does sync b/up ./up.back
[ "$(readlink up.back/link) $(readlink up.back/other)" = 'second first' ] || say "symlinks: $(ls -l up.back)"
"$lapis" ls -r b/up | grep lapis- && say "sync left something of its own"
does rm -r b/up

# The other way the same: a directory here gives way to a file or symlink of the store only with --delete.
mkdir -p down/f/deep down/l/deep
echo 1 >down/f/deep/1
ln -s nowhere down/f/deep/link
echo 2 >down/l/deep/2
does put file b/down/f
does put file b/down/other
does sync ./down/f/deep b/links
does mv b/links/link b/down/l
fails 'f: is a local directory \(--delete replaces it\)' "$lapis" sync b/down ./down
grep -q 'l: is a local directory' err || say "a symlink for a directory here is not named: $(cat err)"
[ "$(wc -l <err)" = 2 ] || say "not two lines: $(cat err)"
[ "$(cat down/f/deep/1 down/l/deep/2 down/other | tr '\n' ' ')" = '1 2 content ' ] || say "a sync down has changed $(find down)"
fails 'f: is a local directory' "$lapis" sync -n b/down ./down
[ "$("$lapis" sync -n --delete b/down ./down | tr '\n' ' ')" = 'remove  f get     f remove  l get     l ' ] ||
	say "sync -n --delete down: $("$lapis" sync -n --delete b/down ./down)"
[ "$(cat down/f/deep/1)" = 1 ] || say "sync -n --delete has removed something"
does sync --delete b/down ./down
[ "$(cat down/f) $(readlink down/l)" = 'content nowhere' ] || say "a sync down has left $(find down)"
[ -z "$("$lapis" sync -n --delete b/down ./down)" ] || say "more to do: $("$lapis" sync -n --delete b/down ./down)"
[ "$(find down | LC_ALL=C sort | tr '\n' ' ')" = 'down down/f down/l down/other ' ] || say "a sync down has left $(find down)"
does rm -r b/down b/links

# Two of the same last name cannot go to one directory.
mkdir one two
echo 1 >one/x
echo 2 >two/x
does put one/x b/one/x
does put two/x b/two/x
for command in mv cp 'cp -r'; do
	# shellcheck disable=SC2086 # two words
	expect 2 'b/one/x and b/two/x would both become b/dir/x' $command b/one/x b/other b/two/x b/dir/
done
expect 2 'one/x and two/x would both become b/dir/x' put one/x file two/x b/dir/
expect 1 'No such' stat b/dir
expect 0 '^1$' cat b/one/x
expect 0 '^2$' cat b/two/x
does mv b/one/x b/dir/
expect 0 '^1$' cat b/dir/x
does rm -r b/dir b/two

# A put that failed leaves the time of the object alone, also where it would be 0.
mkdir zero
echo old >zero/f
does sync ./zero b/zero
before=$(mtime b/zero/f)
echo new >zero/f
touch -d @0 zero/f
chmod 000 zero/f
fails 'f: Permission denied' unprivileged "$lapis" sync ./zero b/zero
[ "$(mtime b/zero/f)" = "$before" ] || say "a put that failed set the time to $(mtime b/zero/f)"
chmod 644 zero/f
does sync ./zero b/zero
expect 0 new cat b/zero/f
[ "$(mtime b/zero/f)" = 0 ] || say "the time of a file of time 0 is $(mtime b/zero/f)"

# A time that the store cannot hold, where the file system here can, is the last that it can: the same each time.
mkdir late
echo late >late/f
echo put >late/put
if touch -d '2400-01-01 UTC' late/f late/put && [ "$(stat -c %Y late/f)" = 13569465600 ]; then
	does sync ./late b/late
	[ "$(mtime b/late/f)" = 9223372035999999999 ] || say "the year 2400 is $(mtime b/late/f)"
	[ -z "$("$lapis" sync -n ./late b/late)" ] || say "more to do: $("$lapis" sync -n ./late b/late)"
	does sync b/late ./late.back
	[ "$(stat -c %Y late.back/f)" = 9223372035 ] || say "the year 2400 comes back as $(stat -c %y late.back/f)"
	does put --times late/put b/late/put
	[ "$(mtime b/late/put)" = 9223372035999999999 ] || say "put --times of the year 2400 is $(mtime b/late/put)"
fi

# A file has its name when it is durable: so many at once, and one by itself.
mkdir small
(cd small && seq 300 | while read -r i; do echo "$i" >"$i"; done)
does sync ./small b/small
does sync b/small ./small.back
diff -r small small.back || say "small files came back different"
rm -r small.back
if strace -o trace -e trace=none true 2>/dev/null; then
	# calls COMMAND...: a letter for each: s makes durable, n gives a name.
	calls()
	{
		strace -f -o trace -e trace=fsync,fdatasync,syncfs,linkat,renameat,renameat2 "$lapis" "$@"
		sed -nE 's/^[0-9]+ +(f?d?a?t?a?sync(fs)?)\(.*/s/p; s/^[0-9]+ +(linkat|renameat2?)\(.*/n/p' trace | tr -d '\n'
	}
	got=$(calls get b/small/1 small.1)
	[ "$got" = sns ] || say "a get makes durable and names: $got"
	got=$(calls get b/small/1 small.1)
	[[ $got =~ ^sn+s$ ]] || say "a get over a file makes durable and names: $got"
	got=$(calls sync b/small ./small.back)
	[[ $got =~ ^(sn{1,128})+s$ ]] || say "a sync makes durable and names: $got"
fi

# What a killed run of the same number left is in nobody's way, and is not taken for what is under way.
mkdir left
does put file b/left/f
ln -s f up.link
mkdir linked
mv up.link linked/link
does sync ./linked b/left/in
does sync b/left/in ./left/in
# leave DIR COMMAND...: the command, where another one of its number was killed in DIR.
leave()
{
	(
		ln -s nowhere "$1/.lapis-$BASHPID-link"
		echo half >"$1/.lapis-$BASHPID-0"
		shift
		exec "$@"
	) >out 2>&1 || say "$*: $(cat out)"
}
ln -sfn elsewhere left/in/link
leave left/in "$lapis" sync --delete b/left ./left
[ "$(readlink left/in/link)" = f ] || say "a symlink beside what was left: $(ls -lA left/in)"
[ "$(find left | LC_ALL=C sort | tr '\n' ' ')" = 'left left/f left/in left/in/link ' ] || say "what was left stays: $(find left)"
leave . "$lapis" get b/left/f small.1
cmp file small.1 || say "a get beside what was left"

# -n says what would be got also where there is no directory yet.
mkdir -p tree/d/e
echo 1 >tree/1
echo 2 >tree/d/2
echo 3 >tree/d/e/3
ln -s 1 tree/d/e/link
does sync ./tree b/tree
all='get     1 get     d/2 get     d/e/3 get     d/e/link '
got=$("$lapis" sync -n b/tree ./tree.back | tr '\n' ' ')
[ "$got" = "$all" ] || say "sync -n to what is not there: $got"
mkdir tree.back
got=$("$lapis" sync -n b/tree ./tree.back | tr '\n' ' ')
[ "$got" = "$all" ] || say "sync -n to what is empty: $got"
echo in the way >tree.back/d
got=$("$lapis" sync -n b/tree ./tree.back | tr '\n' ' ')
[ "$got" = "get     1 remove  d ${all#get     1 }" ] || say "sync -n to a file in the way: $got"
does sync b/tree ./tree.back
diff -r --no-dereference tree tree.back || say "the tree came back different"

# held READY ACTION ARG...: a sync that says something waits, for its standard error is full, until
# READY is so and ACTION was done. What it says is in err.
held()
{
	python3 - "$@" <<'CODE'
import os, subprocess, sys, time
ready, action, *call = sys.argv[1:]
out, into = os.pipe()
os.set_blocking(into, False)
for step in (4096, 1):
    try:
        while True:
            os.write(into, b"\n" * step)
    except BlockingIOError:
        pass
os.set_blocking(into, True)
child = subprocess.Popen(call, stderr=into)
os.close(into)
for _ in range(1200):
    if subprocess.run(ready, shell=True, capture_output=True).returncode == 0:
        break
    time.sleep(0.05)
subprocess.run(action, shell=True, check=True)
with os.fdopen(out, "rb") as said, open("err", "wb") as err:
    err.write(said.read().lstrip(b"\n"))
sys.exit(child.wait())
CODE
}

# A directory that vanishes, here or there, is named; the rest is done, with its modes and times.
mkdir -p parts/a parts/gone parts/z
for part in a gone z; do
	echo $part >parts/$part/f
	chmod 750 parts/$part
	touch -d @1000000 parts/$part
done
does sync ./parts b/parts
# Something that is named, the last of its directory.
PYTHONPATH=$LP_TEST_SRC/tests/wire python3 -B - "$LAPIS_ADDRESS" <<'CODE' || say "no fifo in the store"
import sys
import lapis_wire as wire

with wire.Connection(sys.argv[1]) as lapis:
    lapis(wire.make("b/parts/zz", wire.FIFO))
CODE
# shellcheck disable=SC2016 # for the shell of held
held '[ -d parts.back/z ]' "$lapis rm -r b/parts/gone" "$lapis" sync b/parts ./parts.back &&
	say "a directory that vanished there is no failure"
grep -q 'b/parts/gone: the directory no longer exists' err || say "what vanished there is not named: $(cat err)"
[ "$(wc -l <err)" = 2 ] || say "not two lines: $(cat err)"
[ "$(cat parts.back/z/f)" = z ] || say "what is behind a directory that vanished there was left out"
[ "$(stat -c '%a %Y' parts.back/a parts.back/z | uniq)" = '750 1000000' ] ||
	say "modes and times after a directory vanished there: $(stat -c '%n %a %Y' parts.back/*)"
does rm -r b/parts

# The first of three that are read has what is named; the last vanishes, or becomes a file there.
# shellcheck disable=SC2012 # the order of readdir is asked for
mapfile -t order < <(ls -U parts)
mkfifo "parts/${order[0]}/fifo"
touch -d @1000000 "parts/${order[0]}"
for action in "$lapis put file b/parts/${order[1]}" "mv parts/${order[1]} was"; do
	held "$lapis stat b/parts/${order[0]}" "$action" "$lapis" sync ./parts b/parts &&
		say "$action: no failure"
	grep -Eq "${order[1]}: (a file, no directory|No such file)" err || say "$action: not named: $(cat err)"
	[ "$(wc -l <err)" = 2 ] || say "$action: not two lines: $(cat err)"
	expect 0 "${order[2]}" cat "b/parts/${order[2]}/f"
	for part in "${order[0]}" "${order[2]}"; do
		expect 0 '0750' stat "b/parts/$part"
		[ "$(mtime "b/parts/$part")" = 1000000000000000 ] || say "$action: $part is of $(mtime "b/parts/$part")"
	done
	does rm -r b/parts
done

# One that cannot be read here ends neither way.
rm -r parts "parts.back"
mkdir -p parts/a parts/shut parts/z
for part in a shut z; do
	echo $part >parts/$part/f
done
does sync ./parts b/parts
for part in a shut z; do
	echo new $part >parts/$part/f
done
chmod 000 parts/shut
fails 'shut: Permission denied' unprivileged "$lapis" sync --delete ./parts b/parts
expect 0 '^shut$' cat b/parts/shut/f
expect 0 '^new a$' cat b/parts/a/f
expect 0 '^new z$' cat b/parts/z/f
chmod 700 parts/shut
echo so >file
for part in a shut z; do
	does put file b/parts/$part/f
done
if [ "$(id -u)" = 0 ]; then
	chown 1 parts/shut
	chmod 000 parts/shut
	fails 'shut: (Permission denied|Operation not permitted)' \
		setpriv --bounding-set -dac_override,-dac_read_search,-fowner "$lapis" sync --delete b/parts ./parts
	chown 0 parts/shut
	chmod 700 parts/shut
	[ "$(cat parts/a/f parts/shut/f parts/z/f | tr '\n' ' ')" = 'so new shut so ' ] ||
		say "a directory that is shut ends a sync down: $(cat parts/*/f)"
fi

# What is in one that can be listed, and no more, is not taken for what is here no more.
chmod 444 parts/shut
fails 'shut/f: Permission denied' unprivileged "$lapis" sync --delete ./parts b/parts
chmod 700 parts/shut
expect 0 '^so$' cat b/parts/shut/f

# What nobody may write to is made like the store again by who owns it, and nobody may write to it then.
mkdir -p fixed/dir
echo 1 >fixed/dir/f
chmod 555 fixed/dir fixed
does sync ./fixed b/fixed
does sync b/fixed ./fixed.back
does put file b/fixed/dir/f
does put file b/fixed/new
chmod 000 fixed.back/dir
unprivileged "$lapis" sync b/fixed ./fixed.back >out 2>&1 || say "a sync to what nobody may write to: $(cat out)"
cmp file fixed.back/dir/f || say "what nobody may write to was left as it was"
[ "$(stat -c %a fixed.back fixed.back/dir | tr '\n' ' ')" = '555 555 ' ] ||
	say "what nobody may write to has $(stat -c %a fixed.back fixed.back/dir)"
chmod -R u+w fixed fixed.back

# What is mounted here is not what a sync removes: it may be anything, also the store that is read.
mkdir -p room/gone/mount room/gone/dir
echo old >room/gone/dir/f
does mb room
does put file room/f
# shellcheck disable=SC2016 # in the other shell
in_mount='mount --bind room/gone/dir room/gone/mount || exit 77; "$@"; got=$?; umount room/gone/mount; exit $got'
if unshare -m bash -c "$in_mount" bash true 2>/dev/null; then
	fails 'gone: Device or resource busy' unshare -m bash -c "$in_mount" bash "$lapis" sync --delete room ./room
	[ "$(cat room/gone/dir/f)" = old ] || say "a sync removed what is in a mount"
	does put file room/gone
	fails 'gone: Device or resource busy' unshare -m bash -c "$in_mount" bash "$lapis" sync --delete room ./room
	[ "$(cat room/gone/dir/f)" = old ] || say "a file took the place of a mount"
fi

# A directory that is empty here stays there when what was in it goes, also one that a put made.
mkdir -p bare/dir
does put file bare/dir/gone/f
does put file bare/gone/f
does sync --delete ./bare bare
expect 0 '^bare/dir/$' ls bare
[ "$(wc -l <out)" = 1 ] || say "a sync leaves what is not here: $(cat out)"
rmdir bare/dir
does sync --delete ./bare bare
expect 0 'directory' stat bare

finish
