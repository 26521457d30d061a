#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: whatever texts a daemon answers with, a terminal is told nothing by them: lapis shows each escaped.
# Method: one that has the commands of a terminal in every text of its answers.
# timeout: 60
set -u
. "$LP_TEST_SRC/tests/lib.sh"
export LAPIS_ADDRESS=unix:$PWD/sock
pid=

end_all()
{
	[ -n "$pid" ] && kill -KILL "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
}
trap end_all EXIT

cat >daemon.py <<'CODE'
import json, os, socket, sys, threading
import lapis_wire as wire

def bad(text):
    return f"\x1b[31m{text}"

# Not as JSON would write it, but as it may come: a number that is none.
number = "\x1b[31m7"
answers = {
    "slow": [{"door": bad("door"), "operation": bad("op"), "object": bad("object"), "result": bad("result"),
              "began_ns": 1, "took_ms": 2.5, "bytes": 3, "timeline": [{"state": bad("WORK"), "ms": 1}]}],
    "scrub": {"running": False, "damaged": 1, "shards": [{"state": bad("state"), "damaged": 1, "places": [
        {"ino": "NUMBER", "offset": "NUMBER", "error": bad("error")}]}]},
    "check": {"state": "done", "problems": 1, "findings": [
        {"severity": bad("severity"), "kind": bad("kind"), "object": bad("object"), "text": bad("text")}]},
    "stats": {"server": bad("server"), "store": bad("store"), "shards_cnt": 1},
    "status": {"state": bad("state"), "reason": bad("reason"), "server": bad("server"), "store": bad("store"),
               "uuid": bad("uuid"), "devices": [{"path": bad("path"), "size_bytes": 1}],
               "mount": {"dir": bad("dir"), "transport": bad("transport")}},
    "explain": {bad("name"): bad("value"), "place": [bad("one"), bad("two")]},
}  # fmt: skip
if sys.argv[1] == "failed":
    answers["check"] = {"state": "failed", "error": bad("error")}
names = {number: name for name, number in wire.OP.items()}

def take(sock, count):
    got = b""
    while len(got) < count:
        more = sock.recv(count - len(got))
        if not more:
            raise EOFError
        got += more
    return got

def answer(name):
    if name == "hello":
        return 0, wire.WELCOME.pack(version=1, crc_mode=wire.CRC_ALL, credits=16, credit_bytes=1 << 20, shard_cnt=1)
    if name == "make":
        return 17, b""
    if name not in answers:
        return 0, b""
    raw = json.dumps(answers[name]).replace('"NUMBER"', number).encode()
    return 0, wire.VALUE.pack(value_bytes=len(raw)) + raw

def serve(sock):
    try:
        while True:
            head = wire.HEADER.unpack(take(sock, wire.HEADER_BYTES))
            take(sock, head.meta_bytes + head.crc_cnt * 4 + head.data_bytes)
            status, meta = answer(names[head.opcode])
            sock.sendall(wire.message(head.opcode, head.request_id, meta,
                                      kind=wire.KIND["reply"], status=status))
    except (EOFError, OSError):
        pass

listener = socket.socket(socket.AF_UNIX)
listener.bind("sock.new")
listener.listen(8)
os.rename("sock.new", "sock")
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
CODE

# serve HOW: such a daemon.
serve()
{
	end_all
	rm -f sock
	PYTHONPATH=$LP_TEST_SRC/tests/wire python3 -B daemon.py "$1" 2>daemon.err &
	pid=$!
	for ((i = 0; i < 600; i++)); do
		[ -S sock ] && break
		sleep 0.05
	done
}

# shows CALL TEXT...: it shows each text, and nothing raw.
shows()
{
	local call=$1 text
	shift
	# shellcheck disable=SC2086 # several words
	"$lapis" $call >out 2>err
	grep -q $'\x1b' out err && say "$call: shows raw: $(cat -v out err)"
	for text in "$@"; do
		grep -Fq "\\x1b[31m$text" out || say "$call: no $text in: $(cat -v out err daemon.err)"
	done
}

serve whole
shows slow door op object result WORK
shows scrub state 7 error
shows check severity kind object text
shows status state reason server store uuid path dir transport
shows "explain b/key" value one two
shows "stats" server store
shows "bench --op ping --ops 10 --warmup 0" server store
serve failed
shows check error
finish
