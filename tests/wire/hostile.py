#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: nothing that comes from a socket crashes the daemon, makes it grow, or keeps others waiting
(promises P5, P7). Method: each test does one hostile thing, on many connections where one might not
show; before, meanwhile and after another client puts and gets, and the daemon's RSS is looked at."""

import contextlib
import errno
import os
import random
import resource
import select
import socket
import struct
import sys
import time

import lapis_wire as wire
import rig
from lapis_wire import CRC_ALL, CRC_HEADER, CRC_OFF, HEADER, OP

SEND_TIMEOUT_S = 2
OPTIONS = ["--memory", "192M", "--send-timeout", str(SEND_TIMEOUT_S), "--connections-max", "256"]
# Pools and caches are filled as they are first used; a leak per message would be seen all the same.
GROWTH_KIB_MAX = 96 << 10 if "san" not in rig.BUILD.name else 384 << 10
# Not a measure of speed: far above what a bystander waits for, far below a timeout of the daemon's.
QUICK_S = 1.0 if "san" not in rig.BUILD.name else 10.0


class Bystander:
    """Another client, who must not notice anything, and an eye on the daemon's memory."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.clients = [daemon.connect(shard=shard) for shard in (0, 1)]
        self.data = wire.random_bytes(20000, "bystander")
        self.longest_s = 0.0
        for _ in range(20):
            self.look()
        self.rss_kib = daemon.rss_kib()
        self.growth_kib = 0
        self.longest_s = 0.0

    def look(self):
        for number, lapis in enumerate(self.clients):
            begin = time.monotonic()
            lapis(wire.put(f"bystander/{number}", self.data))
            assert lapis(wire.get(f"bystander/{number}")).data == self.data
            self.longest_s = max(self.longest_s, time.monotonic() - begin)
        if hasattr(self, "rss_kib"):
            self.growth_kib = max(self.growth_kib, self.daemon.rss_kib() - self.rss_kib)

    def end(self):
        self.look()
        for lapis in self.clients:
            lapis.close()
        print(f"     bystander: {self.longest_s * 1000:.1f} ms, grown by {self.growth_kib} KiB")
        assert self.growth_kib < GROWTH_KIB_MAX, f"grown by {self.growth_kib} KiB"
        assert self.longest_s < QUICK_S, f"another client waited for {self.longest_s:.3f} s"


@contextlib.contextmanager
def bystander(daemon):
    other = Bystander(daemon)
    yield other
    other.end()


def read_to_end(lapis):
    """All replies until the daemon closes: (header, meta) of each."""
    replies = []
    while True:
        try:
            header, meta, _ = lapis.next_message()
            replies.append((header, meta))
        except wire.Closed:
            assert not lapis.in_bytes, "half a message before the end"
            return replies


def expect_end(lapis, *errors):
    """One reply without a request, with one of these errors, then the end."""
    replies = read_to_end(lapis)
    assert len(replies) == 1, replies
    header, meta = replies[0]
    assert (header.opcode, header.request_id) == (0, 0), header
    assert header.status in [getattr(errno, error) for error in errors], (
        f"{errno.errorcode.get(header.status)} {meta}, not {errors}"
    )
    assert 0 < len(meta) <= 255, meta
    meta.decode("utf-8")


def expect_no_more(lapis):
    """The daemon closes, whatever it says before."""
    with contextlib.suppress(ConnectionError):
        read_to_end(lapis)


def unreadable(daemon, errors, crc=CRC_ALL, features=0, **fields):
    """A ping with these wrong fields ends the connection with such an error."""
    with bystander(daemon) as other:
        for _ in range(20):
            with daemon.connect(crc=crc, features=features) as lapis:
                lapis(wire.ping())
                lapis.send(wire.message("ping", 77, crc=crc, **fields))
                expect_end(lapis, *errors)
        other.look()


def test_magic(daemon):
    unreadable(daemon, ["EPROTO"], magic=0x12345678)
    unreadable(daemon, ["EPROTO"], crc=CRC_OFF, magic=0)


def test_version(daemon):
    unreadable(daemon, ["EPROTONOSUPPORT"], version=2)


def test_kind(daemon):
    unreadable(daemon, ["EPROTO"], kind=2)
    unreadable(daemon, ["EPROTO"], kind=0)
    unreadable(daemon, ["EPROTO"], kind=3)
    unreadable(daemon, ["EPROTO"], kind=4)


def test_header_crc(daemon):
    for crc in (CRC_HEADER, CRC_ALL):
        unreadable(daemon, ["EBADMSG"], crc=crc, header_crc=0x12345678)


def test_meta_crc(daemon):
    with bystander(daemon):
        for crc in (CRC_HEADER, CRC_ALL):
            with daemon.connect(crc=crc) as lapis:
                meta = wire.stat("").meta
                lapis.send(wire.message("stat", 5, meta, crc=crc, meta_crc=1))
                expect_end(lapis, "EBADMSG")


def test_lengths(daemon):
    for crc in (CRC_OFF, CRC_ALL):
        errors = ["EMSGSIZE"]
        unreadable(daemon, errors, crc=crc, meta_bytes=wire.META_MAX + 1)
        long_meta = wire.FEATURE["long_meta"]
        unreadable(daemon, errors, crc=crc, features=long_meta, meta_bytes=wire.LONG_META_MAX + 1)
        unreadable(daemon, errors, crc=crc, data_bytes=wire.DATA_MAX + 1, crc_cnt=1025)
        unreadable(daemon, errors, crc=crc, meta_bytes=0xFFFFFFFF)
        unreadable(daemon, errors, crc=crc, data_bytes=0xFFFFFFFF)  # 4 GiB claimed
        unreadable(daemon, errors, crc=crc, crc_cnt=0xFFFFFFFF)
        unreadable(
            daemon, errors, crc=crc,
            meta_bytes=0xFFFFFFFF, data_bytes=0xFFFFFFFF, crc_cnt=0xFFFFFFFF,
        )  # fmt: skip


def test_crc_count(daemon):
    """A wrong number of checksums: refused, and nothing is stored; it may end the connection."""
    with bystander(daemon):
        request = wire.put("hostile/count", b"x" * 10000)
        for count in (0, 1, 2, 4, 1025):
            with daemon.connect(crc=CRC_ALL) as lapis:
                right = wire.message("put", 5, request.meta, request.data)
                sums = bytes(4 * count)
                behind = request.meta + sums
                header = HEADER.unpack(right)._replace(
                    crc_cnt=count, meta_crc=wire.crc32c(behind), header_crc=0
                )
                raw = HEADER.struct.pack(*header)[:-4]
                lapis.send(raw + struct.pack("<I", wire.crc32c(raw)) + behind + request.data)
                reply, _, _ = lapis.next_message()
                assert reply.status in (errno.EINVAL, errno.EMSGSIZE), reply
                if reply.request_id == 5:
                    lapis(wire.ping())
                else:
                    expect_no_more(lapis)
        with daemon.connect() as lapis:
            rig.refused(lapis, wire.stat("hostile/count"), "ENOENT")


def test_data_nobody_wants(daemon):
    """Data on a request that has none is refused; the connection lives."""
    with bystander(daemon), daemon.connect() as lapis:
        for request in (wire.ping(), wire.stat(""), wire.list_keys(), wire.sync(), wire.status()):
            request.data = b"x" * 50000
            rig.refused(lapis, request, "EINVAL")
        lapis(wire.ping())


def test_before_hello(daemon):
    with bystander(daemon):
        for request in (wire.ping(), wire.stat(""), wire.put("hostile/early", b"x")):
            with daemon.connect(hello=False) as lapis:
                lapis.send(wire.message(request.op, 1, request.meta, request.data))
                replies = read_to_end(lapis)
                assert len(replies) == 1 and replies[0][0].status != 0, replies
        with daemon.connect() as lapis:
            rig.refused(lapis, wire.stat("hostile/early"), "ENOENT")
        with daemon.connect(hello=False) as lapis:
            lapis.send(os.urandom(5000))
            expect_no_more(lapis)
        with daemon.connect(hello=False) as lapis:
            lapis.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + b"\r\n" * 64)
            expect_no_more(lapis)


def test_hello_twice(daemon):
    with bystander(daemon), daemon.connect(crc=CRC_ALL) as lapis:
        try:
            lapis.hello()
        except wire.Refused as refusal:
            assert refusal.errno == errno.EISCONN, refusal
        else:
            raise AssertionError("a second hello was welcome")
        lapis(wire.ping())


def test_half_a_header(daemon):
    """Who is silent in the middle of something keeps nobody waiting, and goes unnoticed."""
    whole = wire.message("put", 1, wire.put("hostile/half", b"").meta, b"x" * 100000)
    with bystander(daemon) as other, contextlib.ExitStack() as stack:
        for number in range(100):
            lapis = stack.enter_context(daemon.connect())
            lapis.send(whole[: (1, 63, 64, 65, 100, 200, 50000, len(whole) - 1)[number % 8]])
            if number % 10 == 0:
                other.look()
        time.sleep(SEND_TIMEOUT_S / 4)
        other.look()
    with daemon.connect() as lapis:
        rig.refused(lapis, wire.stat("hostile/half"), "ENOENT")


def test_half_a_message_then_close(daemon):
    whole = wire.message("put", 1, wire.put("hostile/cut", b"").meta, b"x" * 100000)
    with bystander(daemon) as other:
        for number in range(300):
            lapis = daemon.connect()
            lapis.send(whole[: 1 + (number * 7919) % (len(whole) - 1)])
            if number % 3 == 0:  # a reset rather than an end
                lapis.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            lapis.close()
            if number % 50 == 0:
                other.look()
    with daemon.connect() as lapis:
        rig.refused(lapis, wire.stat("hostile/cut"), "ENOENT")


def test_requests_then_close(daemon):
    """Replies to somebody who has gone."""
    with bystander(daemon) as other:
        for number in range(100):
            lapis = daemon.connect(crc=CRC_HEADER)
            for at in range(20):
                lapis.start(wire.put(f"hostile/gone{at}", b"x" * 50000))
                lapis.start(wire.get(f"hostile/gone{at}"))
            lapis.close()
            if number % 20 == 0:
                other.look()


def test_never_reads(daemon):
    """Who reads no replies is not served for ever: others have room, and in the end he is closed."""
    with bystander(daemon) as other, contextlib.ExitStack() as stack:
        with daemon.connect() as lapis:
            lapis(wire.put("hostile/big", wire.random_bytes(4 << 20)))
        get = wire.get("hostile/big")
        raw = b"".join(wire.message("get", n, get.meta) for n in range(1, 2000))
        socks = []
        for _ in range(8):
            lapis = stack.enter_context(daemon.connect(name="never reads"))
            lapis.sock.setblocking(False)
            socks.append((lapis.sock, memoryview(raw)))
        closed, end = set(), time.monotonic() + SEND_TIMEOUT_S + rig.PATIENCE_S
        while len(closed) < len(socks) and time.monotonic() < end:
            for index, (sock, rest) in enumerate(socks):
                if index in closed:
                    continue
                try:
                    socks[index] = (sock, rest[sock.send(rest) :] if rest else rest)
                except BlockingIOError:
                    pass
                except (BrokenPipeError, ConnectionResetError):
                    closed.add(index)
                    continue
                poll = select.poll()
                poll.register(sock, select.POLLOUT)
                if any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0)):
                    closed.add(index)
            other.look()
            time.sleep(0.02)
        assert len(closed) == len(socks), f"only {len(closed)} of {len(socks)} were closed"


def test_many_connections(daemon):
    """Thousands of connections: too many are refused, and their going gives the room back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2000
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, wanted + 200), hard))
    wanted = min(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)
    with bystander(daemon) as other:
        socks = []
        for number in range(wanted):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(rig.PATIENCE_S)
            try:
                sock.connect(daemon.address.removeprefix("unix:"))
            except OSError:
                sock.close()
                break
            socks.append(sock)
            if number % 200 == 0:
                other.look()
        for sock in socks:
            sock.close()
        for _ in range(50):
            other.look()
        for _ in range(300):  # one after the other is no problem
            daemon.connect().close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    _connect_as_many(daemon)


def _connect_as_many(daemon):
    """There is room for 400 that say hello and are served, after all of that has gone."""
    with contextlib.ExitStack() as stack:
        clients = []
        end = time.monotonic() + rig.PATIENCE_S
        while len(clients) < 400:
            try:
                clients.append(stack.enter_context(daemon.connect(shard=len(clients) % 2)))
            except (wire.Closed, wire.Refused, ConnectionError):
                assert time.monotonic() < end, f"no room for more than {len(clients)}"
                time.sleep(0.05)
        calls = [(lapis, lapis.start(wire.put("hostile/many", b"x"))) for lapis in clients]
        for lapis, call in calls:
            lapis.wait(call)


def test_many_uploads_and_opens(daemon):
    """What a client may have open at once is limited, and gone with it."""
    with bystander(daemon) as other:
        with daemon.connect() as lapis:
            lapis(wire.put("hostile/open", b"x"))
            outcomes = set()
            for request in (wire.upload("hostile/up"), wire.open_("hostile/open")):
                for _ in range(40):
                    calls = [lapis.start(request) for _ in range(100)]
                    for call in calls:
                        outcomes.add(lapis.wait_reply(call).status)
                    other.look()
            known = {0, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOBUFS}
            assert outcomes <= known, outcomes
        other.look()
    with daemon.connect() as lapis:
        for _ in range(10):
            up = lapis(wire.upload("hostile/up"))
            lapis(wire.abort(up.ino))


def test_same_request_id(daemon):
    """A request_id that is in use: whatever is answered, nothing breaks."""
    with bystander(daemon), daemon.connect() as lapis:
        get = wire.get("bystander/0")
        lapis.send(wire.message("get", 7, get.meta) * 50)
        for _ in range(50):
            header, _, data = lapis.next_message()
            assert header.request_id in (0, 7)
            assert header.status != 0 or data == wire.random_bytes(20000, "bystander")
            if header.request_id == 0:
                break


def test_random_messages(daemon):
    """Each opcode with any meta: header and checksums are right, so that all of it is looked at."""
    seed = int(os.environ.get("LP_TEST_SEED", "1"))
    dice = random.Random(seed)
    print(f"     seed {seed}")
    ops = [op for op in OP.values() if op not in (OP["hello"], OP["config_set"])]
    with bystander(daemon) as other:
        lapis = daemon.connect()
        for number in range(4000):
            op = dice.choice(ops)
            meta = bytearray(dice.randbytes(dice.choice((0, 8, 16, 24, 32, 40, 48, 56, 64, 136, 200))))
            if dice.random() < 0.7 and len(meta) >= 16:  # a reference that leads somewhere
                path = dice.choice((b"", b"r", b"r/a", b"r/b/c", b"bystander"))
                meta[:16] = wire.REF.pack(ino=dice.choice((0, 0, 1, 2, 17)), path_bytes=len(path))
                for at in range(16, len(meta)):
                    if dice.random() < 0.9:
                        meta[at] = 0
                meta += path
            data = dice.randbytes(dice.choice((0, 0, 0, 1, 5000)))
            request = wire.Request(op, bytes(meta), data=data, offset=number if data else 0)
            try:
                lapis.wait_reply(lapis.start(request))
            except (wire.Refused, wire.Closed) as error:
                raise AssertionError(f"{op} {bytes(meta)!r}: {error}") from error
            if number % 500 == 0:
                other.look()
        lapis.close()


def test_flipped_bits(daemon):
    """Without checksums any byte of a stream of good messages may be another one."""
    seed = int(os.environ.get("LP_TEST_SEED", "1"))
    dice = random.Random(seed)
    requests = [
        wire.put("flip/a", b"x" * 3000), wire.get("flip/a"), wire.stat("flip"), wire.delete("flip/a"),
        wire.xattr_set("flip/a", "user.k", b"v"), wire.readdir("flip", with_attrs=True),
        wire.compound("flip/a", wire.change("guard_no_xattr", "k"), wire.change("punch", length=9)),
        wire.list_keys("fl", delimit=True), wire.upload("flip/u"), wire.make("flip/d", 2),
        wire.rename("flip/a", "flip/b"), wire.write("flip/a", b"y" * 100, 50),
    ]  # fmt: skip
    good = b"".join(
        wire.message(r.op, n + 1, r.meta, r.data, r.offset, crc=CRC_OFF)
        for n, r in enumerate(requests)
    )
    with bystander(daemon) as other:
        for number in range(400):
            raw = bytearray(good)
            for _ in range(dice.randint(1, 4)):
                raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
            with daemon.connect(crc=CRC_OFF) as lapis:
                with contextlib.suppress(wire.Closed):
                    lapis.send(bytes(raw))
                    lapis.sock.shutdown(socket.SHUT_WR)
                expect_no_more(lapis)
            if number % 100 == 0:
                other.look()


if __name__ == "__main__":
    sys.exit(rig.main(globals()))
