#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Each change of a file takes set-user-ID and set-group-ID away, or leaves them, as the running kernel has it
# with a file system of its own: by who asks, which groups he is in, and the mode. With and without a socket.
# The image and the mount are in the scratch directory, and a tmpfs to compare with. It needs root and /dev/fuse.
# timeout: 240
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
needs python3
mkdir "$ext4"
mount -t tmpfs -o size=16M tmpfs "$ext4" || exit 77
python3 -B "$LP_TEST_SRC/tests/mount_set_ids.py" "$ext4" >wanted || say "it fails on tmpfs"
[ "$(grep -c ' done$' wanted)" -gt 500 ] || say "on tmpfs little can be done: $(grep -vc ' done$' wanted) failures"
make_store 512M
for door in mount socket; do
	listen=()
	[ "$door" = mount ] || listen=(--listen "unix:$PWD/sock" --mount-options suid)
	start "$door" "${listen[@]}"
	python3 -B "$LP_TEST_SRC/tests/mount_set_ids.py" mnt >found 2>&1 || say "$door: it fails"
	diff wanted found >differences || say "$door: not as on tmpfs (way, who, mode before, left):
$(head -40 differences)"
	stop
done
whole
finish
