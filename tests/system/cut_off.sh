#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: a device that is made smaller below the daemon is said to be so, by health and log, within
# seconds and without a request, and no longer when it is as large again; a daemon does not mount over
# the mount of one that lives, and says of which; what `lapis info` says after `lapis grow` is the new
# size.
# Method: an image that is cut off, and a loop device where there is one, whose image is; two daemons.
# variants: release release-nolto debug asan
# timeout: 120
set -u
. "$LP_TEST_SRC/tests/lib.sh"
export LAPIS_ADDRESS=unix:$PWD/sock
fuse=()
mkdir -p mnt
loop=""
[ ! -c /dev/fuse ] || fuse=(--mount "$PWD/mnt")
end_all()
{
	umount -l mnt 2>/dev/null
	end_daemon
	[ -z "$loop" ] || losetup -d "$loop"
}
trap end_all EXIT
trap 'exit 1' TERM INT

# becomes PATTERN: within 20 seconds that is what the status says.
becomes()
{
	local i
	for ((i = 0; i < 200; i++)); do
		"$lapis" status >said 2>&1
		head -n 1 said | grep -Eq -- "$1" && return
		sleep 0.1
	done
	say "the status does not become $1: $(head -n 1 said)"
}

# cut IMAGE DEVICE: the image is cut off below the daemon that has the device.
cut()
{
	truncate -s 200M "$1"
	[ "$1" = "$2" ] || losetup -c "$2"
}

"$lapis" mkfs --size 256M a.img >/dev/null || exit 1
truncate -s 320M a.img
expect 0 'grown from 256 MiB to 320 MiB' grow a.img
expect 0 '^size  *320 MiB' info a.img
free=$("$lapis" info --json a.img | grep -o '"free": *[0-9]*' | grep -o '[0-9]*$')
[ "$free" -gt 290 ] || say "$free chunks are free after grow"

for device in a.img loop; do
	if [ "$device" = loop ]; then
		loop=$(losetup -f --show a.img 2>/dev/null) || loop=""
		[ -n "$loop" ] || continue
		device=$loop
	fi
	serve --memory 192M --listen "$LAPIS_ADDRESS" "$device"
	becomes '^ok since'
	cut a.img "$device"
	becomes "^degraded since .*: .*$device: the device has become smaller than the store on it: 209715200 bytes of 335544320"
	grep -q 'error: health: degraded: .*: the device has become smaller than the store on it' d.err || say "log: $(tail -n 3 d.err)"
	[ "$(grep -c 'has become smaller' d.err)" = 1 ] || say "it is logged again and again"
	truncate -s 320M a.img
	[ -z "$loop" ] || losetup -c "$loop"
	becomes '^ok since'
	end_daemon TERM
	# What was behind the end is gone; the store is made anew.
	[ -z "$loop" ] || losetup -d "$loop"
	loop=""
	rm a.img
	"$lapis" mkfs --size 320M a.img >/dev/null || say mkfs
done

if [ "${#fuse[@]}" -gt 0 ]; then
	serve --memory 192M --listen "$LAPIS_ADDRESS" "${fuse[@]}" a.img
	"$lapis" mkfs --size 256M other.img >/dev/null || say mkfs
	echo here | "$lapis" put - b/here || say put
	if timeout 20 "$LP_TEST_BUILD/bin/lapisd" --memory 192M --listen "unix:$PWD/second" "${fuse[@]}" other.img 2>err; then
		say "it mounts over a living mount"
	fi
	grep -q 'mnt: a daemon that is alive has mounted .*a.img there' err || say "it says: $(cat err)"
	[ "$(cat mnt/b/here)" = here ] || say "the first mount is hidden"
	# One whose daemon is gone is taken away, as ever.
	end_daemon KILL
	serve --memory 192M --listen "$LAPIS_ADDRESS" "${fuse[@]}" a.img
	[ "$(cat mnt/b/here)" = here ] || say "no mount after a kill"
	end_daemon TERM
fi
finish
