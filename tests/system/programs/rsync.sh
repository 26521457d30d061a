#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: rsync -aHAXS to the mount and back keeps all that there is: modes, owners, times, hard links,
# access lists, extended attributes, devices, holes; and its increments find what changed, no more.
# Method: a tree on ext4 (tests/real/tree.py) goes to the mount, from there to another place of the
# mount and back to ext4; the lists of all are compared. Then it is changed, and goes again.
# timeout: 240
# variants: release
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
needs rsync setfacl
tree=$LP_TEST_SRC/tests/real/tree.py

# copy FROM TO ARG... Times are compared to the nanosecond: what was changed within the second in which it is
# copied would keep the time of its copy.
copy()
{
	local from=$1 to=$2
	shift 2
	rsync -aHAXS --modify-window=-1 --numeric-ids --delete "$@" "$from/" "$to/" >rsync.out 2>&1 || say "rsync $from $to: $(tail -n 5 rsync.out)"
}

# like LIST DIR WHAT
like()
{
	python3 "$tree" list "$2" >found.list || say "$3: cannot be listed"
	diff "$1" found.list >diff.out || say "$3: $(head -n 6 diff.out)"
}

mount_ext4 256M
make_store 512M
start first
python3 "$tree" make "$ext4/tree" || say "make"
python3 "$tree" list "$ext4/tree" >right.list
copy "$ext4/tree" "$dir/tree"
like right.list "$dir/tree" "to the mount"
copy "$dir/tree" "$dir/again"
like right.list "$dir/again" "within the mount"
stop
start second
copy "$dir/again" "$ext4/back"
like right.list "$ext4/back" "back from the mount"
copy "$ext4/tree" "$dir/tree" --checksum --itemize-changes
[ ! -s rsync.out ] || say "there is nothing to copy, yet: $(head -n 5 rsync.out)"

# Once in whole files that replace the old ones, once in place.
python3 "$tree" change "$ext4/tree"
python3 "$tree" list "$ext4/tree" >right.list
copy "$ext4/tree" "$dir/tree" --no-whole-file
like right.list "$dir/tree" "changes"
python3 "$tree" list --no-holes "$ext4/tree" >right.list
copy "$ext4/tree" "$dir/again" --inplace --no-whole-file
python3 "$tree" list --no-holes "$dir/again" >found.list
diff right.list found.list >diff.out || say "changes in place: $(head -n 6 diff.out)"
stop
whole
finish
