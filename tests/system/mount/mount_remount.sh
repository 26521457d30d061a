#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mount -o remount changes the mount that is there, and starts no daemon: ro and rw, access times, which the
# daemon keeps, and the kernel's flags. What cannot change is said at once, in one line, and nothing is changed.
# First as mount(8) calls its helper; and by mount(8) itself, where a file system may be laid over /usr/sbin for
# that, in a mount namespace of the test's own.
# The image and the mount are in the scratch directory. It needs root, /dev/fuse and unshare.
# timeout: 240
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
needs unshare
export LAPISD=$lapisd
helper=$LP_TEST_SRC/fuse/mount.lapis

# flags: of the mount, as the table of mounts has them: its own, and those of the file system.
flags()
{
	awk -v dir="$dir" '$5 == dir { print $6, $NF }' /proc/self/mountinfo
}

# remount OPTIONS PATTERN: its flags are like that then.
remount()
{
	timeout 20 "$helper" a.img mnt -o "remount,$1" >helper.out 2>&1 || say "remount,$1: $(cat helper.out)"
	[ ! -s helper.out ] || say "remount,$1 says: $(cat helper.out)"
	# shellcheck disable=SC2053 # a pattern
	[[ "$(flags)" = $2 ]] || say "remount,$1: the flags are $(flags)"
}

# refused OPTIONS PATTERN: at once, in one line, and nothing has changed.
refused()
{
	local before status
	before=$(flags)
	timeout 5 "$helper" a.img mnt -o "remount,$1" >helper.out 2>&1
	status=$?
	[ "$status" = 32 ] || say "remount,$1: exit status $status"
	[ "$(wc -l <helper.out)" = 1 ] || say "remount,$1: not one line: $(cat helper.out)"
	grep -Eq -- "$2" helper.out || say "remount,$1: no '$2' in: $(cat helper.out)"
	[ "$(flags)" = "$before" ] || say "remount,$1: refused, and $before became $(flags)"
}

# counts: whether reading mnt/file changes its access time. What was looked at for that is looked at again a
# second later.
counts()
{
	touch -d '2001-01-01' mnt/file
	sleep 1.1
	dd if=mnt/file of=/dev/null iflag=direct status=none
	[ "$(stat -c %X mnt/file)" != "$(date -d 2001-01-01 +%s)" ]
}

# each_counts PATH COMMAND...: whether reading it twice changes its access time each time. All that it says is
# in the kernel's cache, but for what an opening has dropped.
each_counts()
{
	local path=$1 first second
	shift
	"$@" >/dev/null
	first=$(stat -c %x "$path")
	sleep 0.05
	"$@" >/dev/null
	second=$(stat -c %x "$path")
	sleep 0.05
	"$@" >/dev/null
	[ "$first" != "$second" ] && [ "$second" != "$(stat -c %x "$path")" ]
}

make_store 256M
"$helper" a.img mnt -o nodev,uid=7,lapisd.memory=256M >helper.out 2>&1 || say "mount.lapis: $(cat helper.out)"
daemon_pid=$(cut -d ' ' -f 1 <<<"$(getfattr --only-values -n trusted.lapis.mount mnt 2>/dev/null)")
[ "$(readlink "/proc/$daemon_pid/exe")" = "$(readlink -f "$lapisd")" ] || say "the mount does not name its daemon"
head -c 8192 /dev/zero >mnt/file
counts || say "a read does not count"

# Read-only and back: the kernel refuses, of root as well, and takes writes again.
remount ro 'ro,nodev,relatime ro,*'
touch mnt/new 2>/dev/null && say "something was made on a mount that is read-only"
[ "$(wc -c <mnt/file)" = 8192 ] || say "nothing can be read after remount,ro"
remount rw 'rw,nodev,relatime rw,*'
touch mnt/new || say "nothing can be made after remount,rw"
counts || say "a read does not count after remount,rw"

# Access times are the daemon's.
remount noatime 'rw,nodev,noatime rw,*'
counts && say "a read counts after remount,noatime"
remount ro 'ro,nodev,noatime ro,*'
remount rw 'rw,nodev,noatime rw,*'
counts && say "a read counts after remount,ro and remount,rw of noatime"
remount relatime,nodiratime 'rw,nodev,nodiratime,relatime rw,*'
counts || say "a read does not count after remount,relatime"
each_counts mnt/file cat mnt/file && say "each read counts with relatime"
remount strictatime,diratime 'rw,nodev rw,*'
mkdir mnt/sub
ln -s file mnt/link
each_counts mnt/file cat mnt/file || say "not each read counts after remount,strictatime"
each_counts mnt/sub ls mnt/sub || say "not each reading of a directory counts after remount,strictatime"
each_counts mnt/link readlink mnt/link || say "not each reading of a link counts after remount,strictatime"
remount nodiratime 'rw,nodev,nodiratime rw,*'
each_counts mnt/file cat mnt/file || say "not each read counts after remount,nodiratime of strictatime"
each_counts mnt/sub ls mnt/sub && say "each reading of a directory counts with strictatime,nodiratime"
remount diratime 'rw,nodev rw,*'

# What fstab says is named again, and is so.
remount noexec,nosuid,nodev,relatime,uid=7,lapisd.memory=256M,user,nofail,_netdev,default_permissions,user_id=0 \
	'rw,nosuid,nodev,noexec,relatime rw,*'
remount exec,suid,dev 'rw,relatime rw,*'

refused uid=8 'mount option uid=8: cannot be changed while it is mounted'
refused ro,sync 'mount option sync: cannot be changed'
refused noatime,writeback 'mount option writeback: cannot be changed'
refused ro,lapisd.memory=1G 'mount option lapisd.memory=1G: cannot be changed'
refused attr_timeout=0 'mount option attr_timeout=0: cannot be changed'
refused ro,nonsense 'mount option nonsense: there is no such option'
exec 9>mnt/open
refused ro 'files are open for writing'
exec 9>&-
counts || say "a remount that was refused has changed what the daemon does"

# By mount(8): of a mount that is in fstab, or is not.
cat >by_mount.sh <<'END'
mkdir -p sbin
ln -sf "$2/fuse/mount.lapis" sbin/mount.lapis
ln -sf "$2/fuse/mount.lapis" sbin/mount.fuse.lapis
mount -t overlay overlay -o "lowerdir=$PWD/sbin:/usr/sbin" /usr/sbin 2>/dev/null || exit 77
flags() { awk -v dir="$1" '$5 == dir { print $6, $NF }' /proc/self/mountinfo; }
dir=$1
echo "$PWD/a.img $dir lapis uid=7,lapisd.memory=256M,nofail,x-systemd.automount 0 0" >fstab
status=0
by()
{
	local pattern=$1
	shift
	timeout 20 mount "$@" || status=1
	[[ "$(flags "$dir")" = $pattern ]] && return
	echo "mount $*: the flags are $(flags "$dir")"
	status=1
}
by 'ro,*ro,*' -o remount,ro "$dir"
by 'rw,*rw,*' -o remount,rw "$dir"
by 'rw,noatime *' -o remount,noatime "$dir"
by 'ro,*ro,*' -T fstab -o remount,ro "$dir"
by 'rw,*rw,*' -T fstab -o remount,rw "$dir"
by 'ro,*ro,*' -t lapis -o remount,ro a.img "$dir"
by 'rw,*rw,*' -t lapis -w -o remount a.img "$dir"
exit $status
END
timeout 100 unshare -m bash by_mount.sh "$dir" "$LP_TEST_SRC" >by.out 2>&1
case $? in
0) ;;
77) echo "nothing can be laid over /usr/sbin: mount(8) is not tried" ;;
*) say "by mount(8): $(cat by.out)" ;;
esac

# All of it was done to one daemon, which has served it meanwhile.
kill -0 "$daemon_pid" || say "the daemon has ended"
umount mnt || say "it cannot be unmounted"
await "the daemon to end" is_gone "$daemon_pid"
timeout 5 "$helper" a.img mnt -o remount,ro >helper.out 2>&1 && say "what is not mounted was remounted"
grep -q 'no Lapis store is mounted' helper.out || say "of what is not mounted it says: $(cat helper.out)"
whole
finish
