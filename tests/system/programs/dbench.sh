#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: dbench, the calls of an office's file server from many clients at once, finds nothing wrong, and
# what it leaves is there after a start; so do its clients when they sync.
# Method: dbench with its own load, which says when a call's result is not as recorded, on the mount;
# the tree it leaves is compared before and after a start.
# timeout: 120
# variants: release
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
needs dbench
load=
for path in /usr/share/dbench/client.txt /usr/share/dbench/loadfiles/client.txt; do
	[ -f "$path" ] && load=$path
done
if [ -z "$load" ]; then
	echo "dbench has no load"
	exit 77
fi

# run CLIENTS ARG...
run()
{
	local clients=$1
	shift
	local status tries
	# Its semaphore has its process number for a key, which may be somebody else's: then it has done nothing yet.
	for tries in 1 2 3 4 5 6 7 8; do
		dbench -c "$load" -D "$dir" -t 4 "$@" "$clients" >dbench.out 2>&1
		status=$?
		grep -q "barrier semaphore" dbench.out || break # its status says nothing of that
		echo "dbench, try $tries: $(cat dbench.out); $(ipcs -s)"
		sleep 0.3
	done
	[ "$status" -eq 0 ] || say "dbench $*: $(tail -n 5 dbench.out)"
	grep -Eiq 'error|failed|unexpected|not found' dbench.out && say "dbench $*: $(grep -Ei 'error|failed|unexpected' dbench.out | head -n 5)"
	grep -Eq "^Throughput [1-9][0-9.]* MB/sec .* $clients clients" dbench.out || say "dbench $*: $(tail -n 3 dbench.out)"
}

sums()
{
	(cd "$dir" && find . -type f -print0 | sort -z | xargs -0 -r sha256sum && find . -printf '%p %y %n %s %T@\n' | sort)
}

make_store 1G
start first
run 8 --skip-cleanup
sums >before
[ "$(wc -l <before)" -gt 100 ] || say "dbench leaves little: $(wc -l <before)"
stop
start second
sums >after
diff before after | head -n 5 >diff.out
[ ! -s diff.out ] || say "other after a start: $(cat diff.out)"
rm -rf "$dir"/clients
run 4 --sync-dir --fsync
rm -r "$dir/clients" || say "what it left cannot be removed"
stop
whole
finish
