#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The kernel does not go on believing attributes that a request has changed without saying so: the mode of
# a set-user-ID file that somebody else writes to, times, sizes, blocks, links. With and without a socket, for
# without one nobody ever tells the kernel anything.
# The image and the mount are in the scratch directory. It needs root, /dev/fuse and setpriv.
# timeout: 240
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
needs python3 setpriv

# other COMMAND...: by somebody else, in the mount, which he may not reach by the whole path.
other()
{
	(cd mnt && setpriv --reuid 1001 --regid 1001 --clear-groups "$@")
}

# stale_mode DOOR: a program that asks for the mode only is not told the old one.
stale_mode()
{
	rm -f mnt/f
	echo x >mnt/f
	chmod 4777 mnt/f
	stat -c %A mnt/f >/dev/null
	other sh -c 'echo evil >>f' || say "$1: somebody else cannot write"
	[ "$(stat -c %A mnt/f)" = -rwxrwxrwx ] || say "$1: after a write by somebody else: $(stat -c %A mnt/f)"
}

# run_as DOOR: a set-user-ID program that somebody else has changed runs as who runs it. It is longer than what
# exec reads first, so that there is no other reason to ask for attributes.
run_as()
{
	cp "$(command -v id)" mnt/id
	chmod 4777 mnt/id
	stat -c %A mnt/id >/dev/null
	[ "$(other ./id -u)" = 0 ] || say "$1: a set-user-ID program does not run as its owner"
	# Behind the end of what is loaded.
	other sh -c 'echo >>id' || say "$1: somebody else cannot write to a program"
	[ "$(other ./id -u)" = 1001 ] || say "$1: a program that somebody else has changed runs as its owner"
}

make_store 512M
for door in mount socket; do
	listen=()
	[ "$door" = mount ] || listen=(--listen "unix:$PWD/sock")
	start "$door" "${listen[@]}"
	stale_mode "$door"
	run_as "$door"
	python3 -B "$LP_TEST_SRC/tests/mount_attrs.py" mnt >attrs.out 2>&1 || say "$door: $(cat attrs.out)"
	stop
done
whole
finish
