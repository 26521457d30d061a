#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A daemon with one helper: whoever makes the mount, asks it whether it answers and undoes it waits for
# the kernel, which waits for the mount, which may need a helper to read the index. So that one must not
# be who waits: such a daemon would never be ready, and could not even be killed.
# The image and the mount are in the scratch directory. It needs root and /dev/fuse.
# timeout: 240
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"

# Whoever waits for a mount that does not answer goes when its connection ends, and not before.
end_connection()
{
	local number
	number=$(awk -v dir="$dir" '$5 == dir { split($3, device, ":"); print device[2] }' /proc/self/mountinfo)
	[ -n "$number" ] || return
	mkdir -p control && mount -t fusectl none control || return
	echo 1 >"control/$number/abort"
	umount control
}
trap 'end_connection; end_all' EXIT

make_store 256M

# Many fragments of directories lie between the root's, which the mount is asked for, and what has been
# read of the index by then.
start first
mkdir mnt/d{1..500}
for d in mnt/d*; do
	: >"$d/file"
done
stop

start second --workers 1
[ "$(find mnt -type f | wc -l)" = 500 ] || say "not all is there with one helper"
stop
whole
finish
