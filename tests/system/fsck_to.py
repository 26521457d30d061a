#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# variants: release asan
# timeout: 300
"""Goal: lapis fsck --repair --to makes an index anew where one is damaged in more than bits, in a
copy: all that was acknowledged is there where something of it is left anywhere, also what waited in
the log; what is lost is named; nothing is wrong. The store that was damaged stays as it was.
Method: a store of two shards with known objects, attributes and ordered maps, once after a stop and
once after a kill. One structure after the other is overwritten with zeros. The copy is served and
compared. Then it is checked once more, and written to."""

import os
import pathlib
import random
import re
import subprocess
import sys

SRC = pathlib.Path(os.environ["LP_TEST_SRC"])
BIN = pathlib.Path(os.environ["LP_TEST_BUILD"]) / "bin"
sys.path.insert(0, str(SRC / "tests"))
import bits  # noqa: E402  (found by the line above)

FILES = 70
SOCKET = pathlib.Path("s").absolute()
failures = []


def say(text):
    failures.append(text)
    print(f"FAIL: {text}")


def run(*args):
    env = dict(os.environ, LAPIS_ADDRESS=f"unix:{SOCKET}")
    return subprocess.run([str(a) for a in args], env=env, capture_output=True)


def lapis(*args):
    return run(BIN / "lapis", *args)


def must(*args):
    answer = lapis(*args)
    if answer.returncode != 0:
        raise RuntimeError(f"{args}: {answer.stdout} {answer.stderr}")
    return answer.stdout


def copy(source, target):
    subprocess.run(["cp", "--sparse=always", source, target], check=True)


class Daemon:
    def __init__(self, image):
        SOCKET.unlink(missing_ok=True)
        self.log = open("lapisd.err", "wb")
        args = [BIN / "lapisd", "--memory", "128M", "--listen", f"unix:{SOCKET}", image]
        self.process = subprocess.Popen(
            [str(a) for a in args], stdout=subprocess.PIPE, stderr=self.log
        )
        self.is_ready = any(b"ready" in line for line in iter(self.process.stdout.readline, b""))

    def end(self, kill=False):
        if self.process.poll() is None:
            self.process.kill() if kill else self.process.terminate()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()


def tree(directory):
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def make_store():
    """stop.img and kill.img, and what is in each."""
    dice = random.Random(3)
    source = pathlib.Path("source")
    (source / "photos/2026").mkdir(parents=True)
    (source / "notes").mkdir()
    for i in range(FILES):
        where = source / ("photos/2026" if i % 3 else "notes") / f"object-{i:03}"
        where.write_bytes(dice.randbytes(dice.choice((10, 900, 5000, 70000))))
    must("mkfs", "--size", "64M", "--shards", "2", "store.img")
    daemon = Daemon("store.img")
    for bucket in ("photos", "notes"):
        must("sync", source / bucket, bucket)
    must("xattr", "set", "notes/object-000", "user.colour", "blue")
    must("omap", "set", "notes/object-000", "key", "value")
    must("rm", "notes/object-003")
    (source / "notes/object-003").unlink()
    daemon.end()
    copy("store.img", "stop.img")
    truth = {"stop": tree(source)}
    daemon = Daemon("store.img")
    for i in range(20):
        path = source / "notes" / f"later-{i:03}"
        path.write_bytes(dice.randbytes(dice.choice((10, 900, 5000, 9000))))
        must("put", path, f"notes/{path.name}")
    daemon.end(kill=True)
    copy("store.img", "kill.img")
    truth["kill"] = tree(source)
    return truth


LIST = "warning: shard: shard [01]: the list of its index's files is damaged"
BLOCKS = "error: shard: shard [01]: 1 blocks of its tables and . records are damaged"
LOG = "error: shard: shard [01]: nothing of its log can be read"
FRAME = "error: shard: shard [01]: 1 frames of its log are damaged"


def damages(image, is_killed):
    """(name, offset, length) of what is overwritten, whether nothing is lost by it, what is said."""
    for shard in range(image.shards):
        log = image.region[shard] * bits.BLOCK
        journal = image.journal(shard)
        tables = [file for file in image.files[shard] if file.name.endswith(".sst")]
        table = max(tables, key=lambda file: file.size)
        frames = image.log_frames(shard)
        second = image.journal_frames(shard)[1]
        yield f"superblocks of the journal, shard {shard}", journal, 2 * bits.BLOCK, True, LIST
        yield f"a frame of the journal, shard {shard}", second, bits.BLOCK, True, LIST
        yield f"footer of a table, shard {shard}", table.place(table.size - 53), 40, True, BLOCKS
        yield f"a block of a table, shard {shard}", table.place(0), 3000, False, BLOCKS
        yield f"superblocks of the log, shard {shard}", log, 2 * bits.BLOCK, not is_killed, LOG
        if is_killed:
            middle = frames[len(frames) // 2]
            yield f"a frame of the log, shard {shard}", middle, 64, False, FRAME


def compare(name, truth, is_all, report):
    right = 0
    for path, content in truth.items():
        answer = lapis("cat", path)
        if answer.returncode == 0 and answer.stdout != content:
            say(f"{name}: {path} is wrong")
        is_right = answer.returncode == 0 and answer.stdout == content
        right += is_right
        if not is_right and path.rsplit("/", 1)[1] not in report and is_all:
            say(f"{name}: {path} is lost, and not named: {answer.stderr} {report}")
    if is_all and right < len(truth):
        say(f"{name}: {right} of {len(truth)} objects")
    if right < len(truth) / 4:
        say(f"{name}: only {right} of {len(truth)} objects: {report}")
    if is_all and lapis("xattr", "get", "notes/object-000", "user.colour").stdout != b"blue":
        say(f"{name}: the attribute is gone")
    if is_all and lapis("omap", "get", "notes/object-000", "key").stdout != b"value":
        say(f"{name}: the entry of the ordered map is gone")
    if is_all and lapis("cat", "notes/object-003").returncode == 0:
        say(f"{name}: what was removed is there")
    return right


def check(name, when, damage, truth):
    place, length, is_all, said = damage
    for path in ("damaged.img", "new.img"):
        pathlib.Path(path).unlink(missing_ok=True)
    copy(f"{when}.img", "damaged.img")
    with open("damaged.img", "r+b") as file:
        file.seek(place)
        file.write(bytes(length))
    copy("damaged.img", "before.img")
    answer = lapis("fsck", "--repair", "--to", "new.img", "damaged.img")
    report = (answer.stdout + answer.stderr).decode(errors="replace")
    if subprocess.run(["cmp", "-s", "damaged.img", "before.img"]).returncode != 0:
        say(f"{name}: the store itself was written to")
    if not re.search("repaired: shard: shard [01]: its index was made anew", report):
        say(f"{name}: no index was made anew: {report}")
    if not re.search(said, report):
        say(f"{name}: no word of {said}: {report}")
    if answer.returncode != said.startswith("error"):
        say(f"{name}: exit status {answer.returncode}: {report}")
    daemon = Daemon("new.img")
    if not daemon.is_ready:
        say(f"{name}: the copy is refused: {open('lapisd.err').read()} {report}")
        daemon.end()
        return
    right = compare(name, truth, is_all, report)
    must("mb", "new")
    must("put", SRC / "README.md", "new/object")
    daemon.end()
    again = lapis("fsck", "--deep", "new.img")
    if is_all and again.returncode != 0:
        say(f"{name}: the copy is not in order: {again.stdout}")
    print(f"{name}: {right} of {len(truth)}; {report.splitlines()[-1] if report else ''}")


def check_refusals():
    def expect(status, text, *args):
        answer = lapis("fsck", *args)
        said = (answer.stdout + answer.stderr).decode()
        if answer.returncode != status or text not in said:
            say(f"fsck {args}: {answer.returncode}: {said}")

    expect(2, "--to needs --repair", "--to", "new.img", "stop.img")
    pathlib.Path("there.img").write_bytes(b"mine")
    expect(1, "there.img: exists already", "--repair", "--to", "there.img", "stop.img")
    if pathlib.Path("there.img").read_bytes() != b"mine":
        say("a file that was there is written over")
    expect(1, "No such file", "--repair", "--to", "nowhere/new.img", "stop.img")
    # A store in order: a copy, in order.
    expect(0, "clean", "--repair", "--to", "same.img", "stop.img")
    expect(0, "clean", "--deep", "same.img")
    if [path.name for path in pathlib.Path(".").glob("*img.*")]:
        say("something is left beside the copy")


def check_devices():
    """The copy of a store over three devices has three, and finds them by itself."""
    for path in ("db", "wal"):
        pathlib.Path(path).touch()
        os.truncate(path, 64 << 20)
    must("mkfs", "--size", "128M", "--shards", "2", "--db", "db", "--wal", "wal", "three.img")
    daemon = Daemon("three.img")
    must("mb", "bucket")
    for i in range(40):
        must("put", SRC / "LICENSE", f"bucket/{i}")
    daemon.end(kill=True)
    label = pathlib.Path("db").read_bytes()[:4096]
    region = int.from_bytes(label[688 + 8 : 688 + 16], "little")
    log = int.from_bytes(label[1200 + 4 : 1200 + 8], "little")
    with open("db", "r+b") as file:
        file.seek((region + log) * 4096)
        file.write(bytes(2 * 4096))
    before = [pathlib.Path(path).read_bytes() for path in ("three.img", "db", "wal")]
    said = must("fsck", "--repair", "--to", "copy.img", "three.img")
    os.rename("db", "gone.db")
    os.rename("wal", "gone.wal")
    daemon = Daemon("copy.img")
    for i in range(40):
        if must("cat", f"bucket/{i}") != (SRC / "LICENSE").read_bytes():
            say(f"bucket/{i} of the copy is wrong: {said}")
    daemon.end()
    after = [pathlib.Path(path).read_bytes() for path in ("three.img", "gone.db", "gone.wal")]
    if before != after:
        say("devices of the store itself were written to")


def main():
    truth = make_store()
    check_refusals()
    check_devices()
    for when in ("stop", "kill"):
        image = bits.Image(pathlib.Path(f"{when}.img"))
        for name, *damage in damages(image, when == "kill"):
            check(f"{when}: {name}", when, damage, truth[when])
    return 1 if failures else 0


sys.exit(main())
