#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: tar on the mount, into it and out of it, keeps all that there is: modes, owners, times, hard
# links, access lists, extended attributes, devices, holes.
# Method: a tree made on the mount itself (tests/real/tree.py) must be as one made on ext4; it is
# archived with its holes (-S, which asks for them by lseek), and unpacked on ext4 and on the mount.
# The lists of all are compared. Then an increment, with --listed-incremental.
# timeout: 240
# variants: release
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
needs tar setfacl
tree=$LP_TEST_SRC/tests/real/tree.py
keeps=(--acls --xattrs '--xattrs-include=*' --numeric-owner --sparse)

# does ARG...: tar succeeds.
does()
{
	tar "${keeps[@]}" "$@" >tar.out 2>&1 || say "tar $*: $(tail -n 5 tar.out)"
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
python3 "$tree" make "$ext4/tree" || say "make on ext4"
python3 "$tree" make "$dir/tree" || say "make"
python3 "$tree" list "$ext4/tree" >right.list
like right.list "$dir/tree" "made on the mount"
does -cf "$dir/tree.tar" --format=posix --hole-detection=seek --listed-incremental=increments -C "$dir" tree
[ "$(stat -c %s "$dir/tree.tar")" -lt 20000000 ] || say "the archive has holes in full: $(stat -c %s "$dir/tree.tar")"
does -df "$dir/tree.tar" -C "$dir"
stop
start second
mkdir "$ext4/back" "$dir/back"
does -xpf "$dir/tree.tar" -C "$ext4/back"
like right.list "$ext4/back/tree" "from the mount to ext4"
does -xpf "$dir/tree.tar" -C "$dir/back"
like right.list "$dir/back/tree" "from the mount to the mount"
python3 "$tree" change "$dir/tree"
python3 "$tree" list "$dir/tree" >right.list
does -cf "$dir/increment.tar" --format=posix --listed-incremental=increments -C "$dir" tree
does -xpf "$dir/increment.tar" --listed-incremental=/dev/null -C "$dir/back"
like right.list "$dir/back/tree" "an increment"
stop
whole
finish
