#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: no door takes a value that the other one cannot live with: an owner that nobody can be, a time
# out of range, a mode with a type in it, a name, a size or a device number that no file has. Method:
# tests/wire/values.py says all of them through the socket and on the mount; the store is clean then.
# It needs root and /dev/fuse.
# timeout: 120
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
address=unix:$PWD/sock

make_store 512M
start values --listen "$address"
PYTHONPATH=$LP_TEST_SRC/tests/wire timeout 100 python3 -B "$LP_TEST_SRC/tests/wire/values.py" "$address" "$dir" \
	>values.log 2>&1 || say "$(tail -n 12 values.log)"
cat values.log
# The command refuses it before it asks, and says which numbers there are.
"$lapis" -s "$address" chown 4294967295 v/file 2>err && say "chown took nobody"
grep -q 'numbers up to 4294967294' err || say "chown says: $(cat err)"
quietly -s "$address" chown 12:13 v/file
[ "$(stat -c %u:%g mnt/v/file)" = 12:13 ] || say "chown: $(stat -c %u:%g mnt/v/file)"
quietly -s "$address" chmod 0640 v/file
[ "$(stat -c %a mnt/v/file)" = 640 ] || say "chmod: $(stat -c %a mnt/v/file)"
stop
whole
finish
