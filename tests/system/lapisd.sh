#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The daemon as an operator meets it: start, ready, answers, stop; what is refused and in which words;
# a stale socket, a busy device, kill -9 and start again. Images and sockets are in the scratch
# directory, TCP is on the loopback. The client below is written from docs/format/wire.md.
# timeout: 240
set -u
lapis="$LP_TEST_BUILD/bin/lapis"
lapisd="$LP_TEST_BUILD/bin/lapisd"
failures=0
pids=()

say()
{
	echo "FAIL: $*"
	failures=$((failures + 1))
}

end_all()
{
	local pid
	for pid in "${pids[@]}"; do
		kill -KILL "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
	done
}
trap end_all EXIT

cat >client.py <<'END'
import json, socket, struct, sys

def crc32c(data, table=[]):
    if not table:
        for i in range(256):
            for _ in range(8):
                i = i >> 1 ^ 0x82F63B78 if i & 1 else i >> 1
            table.append(i)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF

def header(opcode, number, meta, with_crc):
    meta_crc = crc32c(meta) if with_crc and meta else 0
    head = struct.pack("<IBBHQIIIIIIQIII", 0x5257504C, 1, 1, opcode, number, 0, 0, 0,
                       len(meta), 0, 0, 0, meta_crc, 0, 0)
    return head + struct.pack("<I", crc32c(head) if with_crc else 0)

def read_exactly(sock, count):
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise EOFError("closed")
        data += more
    return data

def reply(sock):
    fields = struct.unpack("<IBBHQIIIIIIQIII", read_exactly(sock, 64)[:60])
    flags, status, meta_bytes, data_bytes, crcs = fields[5], fields[6], fields[8], fields[9], fields[10]
    meta = read_exactly(sock, meta_bytes + crcs * 4)[:meta_bytes]
    read_exactly(sock, data_bytes)
    return flags, status, meta

def connect(address, shard):
    kind, rest = address.split(":", 1)
    if kind == "unix":
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(rest)
    else:
        host, port = rest.rsplit(":", 1)
        sock = socket.create_connection((host, int(port)))
    sock.settimeout(30)
    meta = struct.pack("<IIQIIIIQHHI", 1, 1, 0, 0, 0, shard, 0, 0, 4, 0, 0) + b"test"
    sock.sendall(header(1, 1, meta, True) + meta)
    flags, status, meta = reply(sock)
    if status != 0:
        raise OSError(status, meta.decode())
    return sock

def value(sock, opcode, text):
    meta = b"" if text is None else struct.pack("<II", len(text), 0) + text.encode()
    sock.sendall(header(opcode, 2, meta, False) + meta)
    whole = b""
    while True:
        flags, status, meta = reply(sock)
        if status != 0:
            print(f"error {status}: {meta.decode()}")
            sys.exit(1)
        length = struct.unpack("<I", meta[:4])[0]
        whole += meta[8:8 + length]
        if not flags & 1:
            return whole.decode()

CODES = {"status": 80, "stats": 81, "slow": 82, "get": 83, "set": 84, "alloc": 86, "heap": 87}

def main():
    address, shard, command = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    text = sys.argv[4] if len(sys.argv) > 4 else None
    if command == "hold":
        socks = [connect(address, shard) for _ in range(8)]
        print("held", flush=True)
        try:
            while socks[0].recv(1):
                pass
        except OSError:
            pass
        return
    print(value(connect(address, shard), CODES[command], text))

main()
END

# start NAME ARG...: a daemon in the background; its output is in NAME.out and NAME.err. Sets $pid.
start()
{
	local name=$1
	shift
	rm -f "$name.out"
	"$lapisd" --memory 128M "$@" >"$name.out" 2>"$name.err" &
	pid=$!
	pids+=("$pid")
}

await_ready()
{
	local i
	for ((i = 0; i < 600; i++)); do
		grep -qs '^lapisd: ready$' "$1.out" && return 0
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.05
	done
	say "$1: not ready: $(cat "$1.err")"
	return 1
}

# stop NAME: SIGTERM, and exit status 0.
stop()
{
	kill -TERM "$pid" 2>/dev/null
	wait "$pid"
	local status=$?
	[ "$status" = 0 ] || say "$1: exit status $status after SIGTERM: $(cat "$1.err")"
}

# refused STATUS PATTERN ARG...: lapisd says one line that matches, and exits so.
refused()
{
	local status=$1 pattern=$2
	shift 2
	timeout 60 "$lapisd" --log-level error "$@" >ref.out 2>ref.err
	local got=$?
	[ "$got" = "$status" ] || say "lapisd $*: exit status $got, not $status: $(cat ref.err)"
	[ "$(wc -l <ref.err)" = 1 ] || say "lapisd $*: not one line: $(cat ref.err)"
	grep -Eq -- "^lapisd: .*$pattern" ref.err || say "lapisd $*: no '$pattern' in: $(cat ref.err)"
	grep -q ready ref.out && say "lapisd $*: said it was ready"
}

# asks PATTERN ARG...: the client's answer matches.
asks()
{
	local pattern=$1
	shift
	python3 client.py "$@" >ask.out 2>&1
	grep -Eq -- "$pattern" ask.out || say "client $*: no '$pattern' in: $(head -c 600 ask.out)"
}

"$lapisd" --version | grep -Eq '^lapisd [0-9.]+ \(' || say "--version"
"$lapisd" --help | grep -q '^usage: lapisd' || say "--help"

# Wrong calls.
truncate -s 64M zeros.img
"$lapis" mkfs --size 256M --shards 2 a.img >mkfs.out || say "mkfs"
refused 2 'bogus: unknown option' --bogus x
refused 2 'no DEVICE given' --listen unix:s
refused 2 'no address to listen on' a.img
refused 2 'memory: 10Q is not a size' --memory 10Q --listen unix:s a.img
refused 2 'memory: 1M is out of range' --memory 1M --listen unix:s a.img
refused 2 'mount-options needs --mount' --mount-options ro --listen unix:s a.img
refused 2 'mount option nonsense: there is no such option' --mount . --mount-options nonsense a.img
refused 1 'it is not empty' --store file --listen unix:s .
refused 2 'store mem takes no DEVICE' --store mem --listen unix:s a.img
refused 2 'neither unix:PATH nor tcp' --listen somewhere a.img
refused 2 'only 127.0.0.1 and \[::1\]' --listen tcp:0.0.0.0:7 a.img
refused 2 'user: nobody-here: there is no such user' --user nobody-here --listen unix:s a.img
refused 2 'allow-gids: none-such: there is no such group' --allow-gids none-such --listen unix:s a.img
refused 1 'No such file' --listen unix:s nowhere.img
refused 1 'no Lapis store is on it' --listen unix:s zeros.img
refused 1 'too little for 9 shards: at least 576 MiB' --store mem --shards 9 --memory 128M --listen unix:s
refused 1 'a file that is not a socket' --memory 128M --listen unix:zeros.img a.img
printf 'memory = 128M\n\nmemroy = 1\n' >bad.conf
refused 2 'bad.conf:3: memroy: there is no such option' --config bad.conf a.img

# A store whose db device is gone; a newer format.
"$lapis" mkfs --size 256M --shards 1 --db db.img b.img >mkfs.out 2>&1 || {
	truncate -s 256M db.img
	"$lapis" mkfs --size 256M --shards 1 --db db.img b.img >mkfs.out || say "mkfs --db: $(cat mkfs.out)"
}
mv db.img moved.img
refused 1 "db device was last found at .*--db must say where it is now" --memory 128M --listen unix:s b.img
start moved --listen unix:moved.sock --db moved.img b.img
await_ready moved && stop moved
# Now it is known, wherever the next one starts.
mkdir elsewhere
cd elsewhere || exit 1
start again --listen unix:again.sock ../b.img
await_ready again && stop again
cd ..
"$lapis" info b.img | grep -Eq "^db device +$PWD/moved.img$" || say "the db device: $("$lapis" info b.img)"
long=$(printf 'n%.0s' {1..250})
mv moved.img "$long"
start long --listen unix:long.sock --db "$long" b.img
await_ready long && stop long
grep -q 'still records its db device at .*moved.img: give --db again' long.err || say "a path too long: $(cat long.err)"

# From a file, on all kinds of sockets, with a pidfile.
cat >a.conf <<END
device = $PWD/a.img
listen = unix:$PWD/run/lapis.sock
listen = tcp:127.0.0.1:0
metrics = tcp:127.0.0.1:0
pidfile = $PWD/pid
END
start a --config a.conf
await_ready a || exit 1
[ "$(cat pid)" = "$pid" ] || say "the pidfile says $(cat pid), not $pid"
[ "$(stat -c %a run/lapis.sock)" = 660 ] || say "mode of the socket: $(stat -c %a run/lapis.sock)"
tcp=$(sed -n 's/.*listening on \(tcp:.*\)/\1/p' a.err)
for shard in 0 1; do
	asks '"state": "ok"' "unix:run/lapis.sock" $shard status
	asks '"state": "ok"' "$tcp" $shard status
done
asks '"hello": \{"count"' "$tcp" 1 stats json
python3 -c 'import json; d = json.load(open("ask.out")); assert len(d["shards"]) == 2 and d["process"]["rss_bytes"] > 0' ||
	say "stats are not as expected"
asks '^lapis_requests_total\{shard="0",op="hello"\}' "$tcp" 0 stats prometheus
asks '^\[' "$tcp" 0 slow
asks '"score"' "$tcp" 0 alloc score
asks '"allocator"' "$tcp" 0 heap stats
asks '"released": true' "$tcp" 0 heap release
metrics=$(sed -n 's/.*metrics on tcp:\(.*\)/\1/p' a.err)
python3 -c 'import sys, urllib.request as u
text = u.urlopen("http://" + sys.argv[1] + "/metrics", timeout=30).read().decode()
assert "lapis_health{state=\"ok\"} 1" in text' "$metrics" || say "metrics over HTTP"

# Live options reach every shard; others are refused.
asks '^"auto"$' "$tcp" 0 get write-path
asks '^"direct"$' "$tcp" 0 set write-path=direct
asks '^64$' "$tcp" 1 set requests-max=64
asks '"write-path": "direct"' "$tcp" 1 get ''
asks '^7$' "$tcp" 0 set credits=7
asks '^67108864$' "$tcp" 0 set credit-bytes=64M
asks '^"kv"$' "$tcp" 0 set deferred-store=kv
asks '"credits": 7,.*"deferred-store": "kv"' "$tcp" 1 get ''
asks 'error 22: deferred-store: disk is not one of log, kv' "$tcp" 0 set deferred-store=disk
asks 'error 22: credits: 0 is out of range: 1 to 4096' "$tcp" 0 set credits=0
asks 'error 22: requests-max: 1 is out of range' "$tcp" 0 set requests-max=1
asks 'error 1: memory: can only be set when' "$tcp" 0 set memory=1G
asks 'error 22: nothing: there is no such option' "$tcp" 0 set nothing=1
asks '^"debug"$' "$tcp" 0 set log-level=debug

# The device is busy, the address is in use.
refused 1 'a daemon, another command or a mount has it' --memory 128M --listen unix:s a.img
refused 1 'another daemon listens there' --store mem --shards 1 --memory 128M --listen "unix:$PWD/run/lapis.sock"
refused 1 'in use' --store mem --shards 1 --memory 128M --listen "$tcp"

# A clean stop with connections open leaves nothing behind.
python3 client.py "unix:run/lapis.sock" 0 hold >hold.out &
hold=$!
pids+=("$hold")
for ((i = 0; i < 100; i++)); do
	grep -q held hold.out && break
	sleep 0.1
done
stop a
wait "$hold"
[ ! -e run/lapis.sock ] || say "the socket is still there"
[ ! -e run/lapis.sock.lock ] || say "the socket's lock is still there"
[ ! -e pid ] || say "the pidfile is still there"
"$lapis" fsck a.img >fsck.out || say "fsck: $(cat fsck.out)"

# kill -9: the socket that stays is replaced, and the store is whole.
start b --config a.conf
await_ready b
kill -KILL "$pid"
wait "$pid" 2>/dev/null
[ -S run/lapis.sock ] || say "kill -9 left no socket, so nothing is tested"
start c --config a.conf --threads 1
await_ready c
grep -q 'replaced the socket of a daemon that is gone' c.err || say "no word of the stale socket"
asks '"threads_cnt": 1' "unix:run/lapis.sock" 1 status
stop c

# A stop while it starts.
for delay in 0 0.02 0.1 0.2; do
	start d --config a.conf
	# Not before signals are waited for: a process that has not begun to may die of it.
	sleep "$delay"
	kill -TERM "$pid" 2>/dev/null
	wait "$pid"
	status=$?
	[ "$status" = 0 ] || [ "$status" = 143 ] || say "stop during start: $status: $(cat d.err)"
done

# Rights are given up once all is open.
if [ "$(id -u)" = 0 ]; then
	start user --user nobody --listen unix:user/user.sock a.img
	await_ready user
	[ "$(stat -c %U user/user.sock)" = nobody ] || say "the socket is not the user's"
	grep -Eq "^Uid:(\s+$(id -u nobody)){4}" "/proc/$pid/status" || say "it is still root"
	stop user
fi

# In memory, and a service manager is told.
python3 - <<'END' >notify.out &
import socket
sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sock.bind("notify.sock")
sock.settimeout(60)
print(sock.recv(100).decode(), flush=True)
print(sock.recv(100).decode(), flush=True)
END
notify=$!
pids+=("$notify")
for ((i = 0; i < 100; i++)); do
	[ -S notify.sock ] && break
	sleep 0.1
done
NOTIFY_SOCKET=$PWD/notify.sock start mem --store mem --shards 2 --listen unix:mem.sock
await_ready mem
asks '"store": "mem"' "unix:mem.sock" 1 status
stop mem
wait "$notify"

# Many shards have what they need where nobody has said how much there is.
"$lapisd" --store mem --shards 20 --threads 1 --listen unix:many.sock >many.out 2>many.err &
pid=$!
pids+=("$pid")
await_ready many
asks '^1342177280$' "unix:many.sock" 0 get memory
stop many
[ "$(tr '\n' ' ' <notify.out)" = "READY=1 STOPPING=1 " ] || say "notified: $(cat notify.out)"

[ "$failures" = 0 ]
