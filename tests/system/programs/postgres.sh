#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: PostgreSQL runs on the mount, and keeps what it has committed when the daemon beneath it is
# killed (rule M1).
# Method: initdb with checksums of pages, pgbench with several clients; the daemon is killed in the
# middle of it and started again, and PostgreSQL recovers. Then there are at least as many
# transactions as pgbench was told of, the balances agree with the history, and pages and trees are
# checked (pg_checksums, amcheck).
# timeout: 240
# variants: release
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
needs setpriv
bin=$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1)
[ -n "$bin" ] || bin=$(dirname "$(command -v initdb)")
if [ ! -x "$bin/initdb" ]; then
	echo "no PostgreSQL: scripts/deps --dev"
	exit 77
fi
data=$dir/data
server=

# It will not be run by root.
nobody=(setpriv --reuid nobody --regid nogroup --clear-groups -- env "HOME=$PWD/home")
as_user()
{
	"${nobody[@]}" "$@"
}

sql()
{
	as_user "$bin/psql" -X -h "$PWD/home" -U nobody -d postgres -At -v ON_ERROR_STOP=1 -c "$1" 2>&1
}

answers()
{
	[ "$(sql 'select 1')" = 1 ]
}

start_server()
{
	"${nobody[@]}" "$bin/postgres" -D "$data" -k "$PWD/home" -c listen_addresses= -c shared_buffers=16MB \
		-c max_wal_size=64MB -c checkpoint_timeout=30s -c jit=off >>server.log 2>&1 &
	server=$!
	pids+=("$server")
	await "the server: $(tail -n 3 server.log)" answers || exit 1
}

stop_server()
{
	kill -INT "$server"
	wait "$server" || say "the server ends with $?: $(tail -n 5 server.log)"
}

# None of its processes, which are in groups of their own, may be left when it starts again.
no_process()
{
	local process
	for process in /proc/[0-9]*; do
		[ "$(readlink "$process/cwd" 2>/dev/null)" = "$data" ] && return 1
	done
	return 0
}

# judge WHAT: everything agrees with everything.
judge()
{
	local answer
	answer=$(sql "select sum(abalance) = (select sum(delta) from pgbench_history)
		and sum(abalance) = (select sum(bbalance) from pgbench_branches)
		and sum(abalance) = (select sum(tbalance) from pgbench_tellers)
		and count(*) = 100000 from pgbench_accounts")
	[ "$answer" = t ] || say "$1: the balances do not agree: $answer"
	answer=$(sql "select count(*) from (select bt_index_check(c.oid, true) from pg_class c
		join pg_am a on a.oid = c.relam where a.amname = 'btree' and c.relkind = 'i'
		and c.relpersistence <> 't') x")
	if ! [[ $answer =~ ^[0-9]+$ ]] || [ "$answer" -lt 50 ]; then
		say "$1: trees: $answer"
	fi
}

make_store 1G
mkdir home
chown nobody home
chmod 711 .
start first
chmod 711 "$dir"
mkdir "$data"
chown nobody:nogroup "$data"
as_user "$bin/initdb" -D "$data" -U nobody -A trust -E UTF8 --no-locale --data-checksums >initdb.out 2>&1 || {
	say "initdb: $(tail -n 5 initdb.out)"
	exit 1
}
start_server
sql 'create extension amcheck' >out || say "amcheck: $(cat out)"
as_user "$bin/pgbench" -h "$PWD/home" -U nobody -i -s 1 -q postgres >pgbench.out 2>&1 || say "pgbench -i: $(tail -n 5 pgbench.out)"
as_user "$bin/pgbench" -h "$PWD/home" -U nobody -c 4 -j 2 -t 200 -n postgres >pgbench.out 2>&1 || say "pgbench: $(tail -n 5 pgbench.out)"
[ "$(sql 'select count(*) from pgbench_history')" = 800 ] || say "the history has not 800 rows"
judge "pgbench"
stop_server
as_user "$bin/pg_checksums" --check -D "$data" >out 2>&1 || say "checksums: $(tail -n 5 out)"
stop

start second
start_server
for round in 1 2; do
	before=$(sql 'select count(*) from pgbench_history')
	# Its log has a line for each transaction that was acknowledged.
	(cd home && exec "${nobody[@]}" "$bin/pgbench" -h "$PWD" -U nobody \
		-c 4 -j 2 -T 60 -n -l --log-prefix="log$round" postgres >"../pgbench$round.out" 2>&1) &
	clients=$!
	pids+=("$clients")
	has_done()
	{
		[ "$(sql 'select count(*) from pgbench_history')" -gt $((before + 300)) ]
	}
	await "transactions: $(tail -n 5 "pgbench$round.out")" has_done
	kill_daemon
	wait "$clients" && say "pgbench succeeds though the mount is dead"
	# It may not have noticed yet.
	kill -QUIT "$server" 2>/dev/null
	await "the end of a server whose mount is dead" is_gone "$server" || exit 1
	wait "$server" 2>/dev/null
	await "the end of all of its processes" no_process || exit 1
	quietly umount "$dir"
	start "again$round"
	start_server
	grep -q 'database system was not properly shut down' server.log || say "it did not recover: $(tail -n 5 server.log)"
	told=$(cat home/log"$round"* | wc -l)
	after=$(sql 'select count(*) from pgbench_history')
	[ "$told" -gt 100 ] || say "only $told transactions were acknowledged"
	[ "$after" -ge $((before + told)) ] || say "$((before + told)) transactions were acknowledged, $after are there"
	[ "$after" -le $((before + told + 4)) ] || say "$after transactions are there, of $((before + told)) and 4 at most"
	judge "kill -9, $round"
done
stop_server
as_user "$bin/pg_checksums" --check -D "$data" >out 2>&1 || say "checksums after kill -9: $(tail -n 5 out)"
stop
whole
finish
