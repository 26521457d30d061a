#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A set-user-ID program that somebody else writes to while it is started runs as it was, with its owner's
# rights, or as he has made it, with his own; never as he has made it with its owner's. With and without a socket,
# and beside it the same on tmpfs, which tells whether the test is right.
# The image and the mount are in the scratch directory. It needs root, /dev/fuse and a compiler.
# timeout: 240
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
needs "${CC:-cc}"
"${CC:-cc}" -O2 -o run "$LP_TEST_SRC/tests/system/mount/mount_run.c" || say "mount_run.c"

# trials PLACE DIR: a hundred.
trials()
{
	(cd "$2" && timeout 100 ../run 100) >run.out 2>&1 || say "$1: $(cat run.out)"
	echo "$1: $(cat run.out)"
	# Something was tried at all.
	grep -Eq 'evil as who runs it [1-9]' run.out || say "$1: nobody has changed anything: $(cat run.out)"
}

mkdir plain
mount -t tmpfs none plain && trials tmpfs plain
umount plain
make_store 512M
for door in mount socket; do
	listen=()
	[ "$door" = mount ] || listen=(--listen "unix:$PWD/sock")
	start "$door" "${listen[@]}"
	trials "$door" mnt
	grep 'is not run' "$door.err" && say "$door: the kernel could not be told"
	stop
done
whole
finish
