#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# scripts/up starts a daemon, again after it was stopped, and again after it was killed; all that was
# stored is there each time. In a directory of its own, with this build and without installing or
# building anything.
# timeout: 120
set -u
. "$LP_TEST_SRC/tests/lib.sh"

mkdir -p tree/scripts tree/build bin
cp "$LP_TEST_SRC/scripts/up" tree/scripts/
ln -s "$LP_TEST_BUILD" tree/build/release
printf '#!/bin/sh\n' | tee tree/scripts/deps >bin/make
chmod +x tree/scripts/deps bin/make
PATH=$PWD/bin:$PATH:/usr/sbin:/sbin
mount=$PWD/tree/build/up/mnt

end_all()
{
	end_daemon KILL
	tree/scripts/up --stop >/dev/null 2>&1
	umount -l "$mount" 2>/dev/null
}
trap end_all EXIT
trap 'exit 1' TERM INT

# up WHEN: a daemon runs, and has what was stored.
up()
{
	local where
	tree/scripts/up >up.out 2>&1 || say "$1: $(cat up.out)"
	where=$(sed -n 's/.* LAPIS_ADDRESS=//p' up.out)
	[ -n "$where" ] || say "$1: does not say where: $(cat up.out)"
	export LAPIS_ADDRESS=$where
	[ "$1" = first ] || expect 0 'Apache License' cat photos/licence
	if [ "$(id -u)" != 0 ] || [ ! -c /dev/fuse ]; then
		return
	fi
	mountpoint -q "$mount" || say "$1: nothing is mounted"
	grep -q 'as files: ls -l build/up/mnt' up.out || say "$1: does not say that it is mounted: $(cat up.out)"
	[ "$1" = first ] || cmp -s "$mount/photos/licence" "$LP_TEST_SRC/LICENSE" || say "$1: not in the mount"
}

up first
"$lapis" mb photos || say "no bucket"
"$lapis" put "$LP_TEST_SRC/LICENSE" photos/licence || say "no object"
tree/scripts/up | grep -q 'running already' || say "does not say that it runs"
tree/scripts/up --stop >stop.out || say "does not stop"
[ ! -s stop.out ] || say "a stop says something: $(cat stop.out)"
up "after a stop"
"$lapis" mb more || say "no second bucket" # so the kernel knows the mount's root no more
kill -KILL "$(cat tree/build/up/pid)"
for ((i = 0; i < 100; i++)); do
	[ -e "/proc/$(cat tree/build/up/pid)" ] || break
	sleep 0.1
done
up "after kill -9"
tree/scripts/up --stop || say "does not stop"
expect 0 'clean' fsck --deep tree/build/up/store.img
tree/scripts/up --stop | grep -q 'no daemon is running' || say "does not say that none runs"
# A number that was left is that of another one's daemon now.
serve --store mem --shards 1 --memory 128M --listen "unix:$PWD/other"
echo "$daemon" >tree/build/up/pid
tree/scripts/up --stop | grep -q 'no daemon is running' || say "takes another daemon for its own"
kill -0 "$daemon" || say "has ended another daemon"
end_daemon TERM
rm tree/build/up/pid
tree/scripts/up --nonsense 2>&1 | grep -q 'unknown argument' || say "takes any argument"
finish
