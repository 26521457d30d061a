#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: access lists behave as on ext4: who may do what, what is inherited from a default list, what
# chmod makes of a list and the umask of what is new; getfacl and setfacl carry them over.
# Method: the same commands are run in a directory of ext4 and in one of the mount; what they say, what
# getfacl says of the trees, and attributes (getfattr) must be equal.
# timeout: 120
# variants: release
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
needs setfacl getfacl getfattr setfattr setpriv

# as UID GROUPS COMMAND: what somebody else gets to do, and that he does not.
as()
{
	setpriv --reuid "$1" --regid "$1" --groups "$2" -- sh -c "$3" && echo "$1 ($2) may: $3" || echo "$1 ($2) may not: $3"
}

# In the order of names, which is that of no file system.
lists()
{
	find top top2 -print0 | sort -z | xargs -0 getfacl -P -n
	find top top2 -print0 | sort -z | xargs -0 getfattr -h -d -m -
}

commands()
{
	umask 027
	mkdir top
	setfacl -m u:1001:rwx,g:2001:rx top
	setfacl -d -m u:1001:rwx,u:1002:r,g:2001:rx,g::x,o::r top
	echo one >top/one
	mkdir top/sub top/sub/sub
	mkfifo top/fifo
	ln -s one top/link
	install -m 4755 /dev/null top/installed
	cp -a top top2
	(umask 0 && echo two >top/sub/two && mkdir top/sub/open)
	chmod 640 top/one
	chmod 777 top/sub/open
	chmod g-w,o+x top/sub/two
	chgrp 2001 top/sub
	chmod g+s top/sub
	mkdir top/sub/inherits
	echo x >top/sub/inherits/x
	setfacl -m m::r top2/one
	setfacl -x u:1002 top2/sub
	setfacl -k top2/sub/sub
	setfacl -b top2
	mv top/one top2/moved
	ln top2/moved top/again
	for ((i = 0; i < 200; i++)); do
		echo "user:$((3000 + i)):rwx"
	done >entries
	setfacl -M entries top2/installed
	getfacl -R -n top >saved
	chmod -R 700 top
	setfacl -R -b top
	setfacl --restore=saved
	setfattr -n user.a -v 'some value' top/sub
	setfattr -n trusted.b -v 0x0001ff top/sub
	setfattr -h -n trusted.link -v on top/link
	setfattr -n user.no -v x top/fifo
	setfattr -n user.a -v x top/link/none
	chmod 755 .
	as 1001 1001 'cat top/sub/two'
	as 1001 1001 'echo >>top/sub/two'
	as 1002 1002 'cat top/sub/two'
	as 1002 1002 'cat top/one'
	as 5000 2001 'ls top'
	as 5000 2001 'echo >top/sub/new'
	as 5000 5000 'ls top/sub'
	as 1001 1001 'echo new >top/sub/inherits/y'
	as 1001 1001 'mkdir top/sub/inherits/z'
	as 1001 1001 'rm top/sub/two'
	as 3007 3007 'echo >top2/installed'
	as 1001 1001 'setfacl -m u:1001:rwx top/sub/sub'
	as 1001 1001 'setfacl -m u:9:r top/sub/inherits/y'
	lists
	stat -c '%n %A %u %g %h' top top/* top/sub/* top/sub/inherits/* top2/moved top2/installed
}

mount_ext4 64M
make_store 256M
start first
for place in "$ext4" "$dir"; do
	mkdir "$place/here"
	(cd "$place/here" && commands) >"${place##*/}.out" 2>&1
done
diff ext4.out mnt.out || say "access lists are otherwise than on ext4"
grep -q 'may: cat top/sub/two' ext4.out || say "nobody may do anything: $(head -n 5 ext4.out)"
grep -q 'may not: ' ext4.out || say "everybody may do everything"
stop
start second
(cd "$dir/here" && lists) >again.out 2>&1
(cd "$ext4/here" && lists) >right.out 2>&1
diff right.out again.out || say "access lists are others after a start"
stop
whole
finish
