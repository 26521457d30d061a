#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A namespace that others than root may change through a socket is mounted nosuid and nodev, unless it is
# asked for otherwise. It needs root and /dev/fuse.
# timeout: 120
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
listen=(--listen "unix:$PWD/sock")

# has OPTION: whether the mount has it.
has()
{
	grep " $dir " /proc/self/mounts | cut -d ' ' -f 4 | tr , '\n' | grep -qx "$1"
}

make_store 512M
start root "${listen[@]}"
has nosuid && say "root alone may connect, and it is nosuid"
has nodev && say "root alone may connect, and it is nodev"
stop

start others "${listen[@]}" --socket-mode 0666
has nosuid || say "all may connect, and it is not nosuid"
has nodev || say "all may connect, and it is not nodev"
stop

start listed "${listen[@]}" --allow-uids 1000
has nosuid || say "user 1000 may connect, and it is not nosuid"
stop

start tcp --listen tcp:127.0.0.1:0 "${listen[@]}"
has nosuid || say "it listens on TCP, and is not nosuid"
stop

start asked "${listen[@]}" --socket-mode 0666 --mount-options suid
has nosuid && say "suid was asked for, and it is nosuid"
has nodev || say "suid was asked for, and it is not nodev"
stop
whole
finish
