#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every option that mount.lapis(8) documents can be mounted, alone and beside a few others, and the kernel and the
# table of mounts have what was asked for; an option that there is not is named as it was given. All pairs are
# tried without a mount by fuse/mount/options_test.
# The mount is in the scratch directory, the store in memory. It needs root and /dev/fuse.
# timeout: 240
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
mkdir "$dir"

# documented: the options of the manual's list, a line each, with a value where they need one.
documented()
{
	sed -n '/^\.It Li ro /,/^\.El/p' "$LP_TEST_SRC/man/mount.lapis.8" | grep '^\.It' |
		sed -E 's/^\.It Li //; s/ Ns (Ar|Li) /</g; s/ , (Li )?/\n/g' |
		sed -E 's/=<(N|SECONDS)$/=5/; s/=<BYTES$/=65536/; s/=<NAME$/=pool/; s/=<TEXT$/=words/
			s/=<HOW$/=device/; s/=<lapis$/=lapis/; s/^x-<NAME$/x-systemd.automount/'
}

# try OPTIONS [SHOWN [GONE]]: it can be mounted; the table of mounts shows the one and not the other.
try()
{
	local status
	rm -f try.out # the last one's says "ready" as well
	"$lapisd" --store mem --memory 128M --mount "$dir" --mount-options "$1" >try.out 2>try.err &
	pid=$!
	pids+=("$pid")
	until grep -qs '^lapisd: ready$' try.out; do
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.02
	done
	shown=$(grep " $dir " /proc/self/mounts)
	[ -n "$shown" ] || say "$1: $(tail -n 1 try.err)"
	[ -z "${2-}" ] || [[ "$shown" = *"$2"* ]] || say "$1: no $2 in: $shown"
	[ -z "${3-}" ] || [[ "$shown" != *"$3"* ]] || say "$1: $3 is in: $shown"
	kill -TERM "$pid" 2>/dev/null
	wait "$pid"
	status=$?
	[ "$status" = 0 ] || say "$1: exit status $status"
}

documented >options
[ "$(wc -l <options)" -gt 40 ] || say "the manual's list is not understood: $(cat options)"
grep -q '[ <]' options && say "the manual's list is not understood: $(grep '[ <]' options)"
while read -r option; do
	try "$option"
done <options
# Nothing that is taken is missing in the manual.
sed -n 's/^\t{"\([a-z_]*\)", [A-Z_]*, .*/\1/p' "$LP_TEST_SRC/fuse/mount/options.c" >taken
[ "$(wc -l <taken)" -gt 40 ] || say "the table of options is not understood: $(cat taken)"
while read -r option; do
	grep -Eq "^$option(=|$)" options || say "the manual does not have $option"
done <taken

try noatime,nodiratime,relatime noatime,nodiratime
try nodiratime,ro,noexec ro,noexec,nodiratime
try strictatime,nodev,nosuid rw,nosuid,nodev relatime
try ro,rw,diratime rw,relatime ro,
try fsname=pool,max_read=65536 max_read=65536
[[ "$shown" = pool\ * ]] || say "fsname: $shown"
try noexec,nosuid,nodev,user,nofail,_netdev,noauto,lazytime,default_permissions nosuid,nodev,noexec

# What there is not.
for option in nonsense nodiratim relatime=1 subtype=ext4 max_read=7 'sp ace'; do
	"$lapisd" --store mem --memory 128M --mount "$dir" --mount-options "ro,$option,relatime" >out 2>err &&
		say "$option is taken"
	[ "$(wc -l <err)" = 1 ] || say "$option: not one line: $(cat err)"
	grep -Fq "mount option $option: " err || say "$option is not named in: $(cat err)"
done
finish
