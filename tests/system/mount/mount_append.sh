#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: what is appended through the mount by AIO without the kernel's cache stays in order (mount F6), and
# where ends are the kernel's own, so that what others appended is overwritten, the daemon warns of it.
# Method: the daemon is held while one append larger than a request is submitted; the kernel tells how many
# requests of it wait. It needs root and /dev/fuse.
# timeout: 120
set -u
. "$LP_TEST_SRC/tests/lib.sh"
. "$LP_TEST_SRC/tests/mount_lib.sh"
listen=(--listen "unix:$PWD/sock")

end_fusectl()
{
	umount -l fusectl 2>/dev/null
	end_all
}
trap end_fusectl EXIT

mkdir fusectl
mount -t fusectl none fusectl || say "no fusectl"
make_store 512M

# Where the kernel is to remember nothing, what is opened is read and written without its cache.
start first "${listen[@]}" --mount-options entry_timeout=0,attr_timeout=0
device=$(stat -c %d mnt)
python3 - mnt "$pid" "fusectl/$(((device & 0xff) | (device >> 12 & 0xfff00)))/waiting" <<'CODE' || say "an append by AIO"
import ctypes, mmap, os, platform, signal, struct, sys, time

SETUP, SUBMIT, GETEVENTS = {"x86_64": (206, 209, 208), "aarch64": (0, 2, 4)}[platform.machine()]
PWRITE = 1
SIZE = 4 << 20
directory, daemon, waiting = sys.argv[1], int(sys.argv[2]), sys.argv[3]
libc = ctypes.CDLL(None, use_errno=True)
content = mmap.mmap(-1, SIZE)
content[:] = b"".join(struct.pack("<I", i) * 1024 for i in range(SIZE // 4096))
path = os.path.join(directory, "appended")
with open(path, "wb") as file:
    file.write(bytes(4096))


def call(*args):
    result = libc.syscall(*args)
    if result < 0:
        raise OSError(ctypes.get_errno(), "AIO")
    return result


def append(fd):
    context, event = ctypes.c_ulong(0), ctypes.create_string_buffer(32)
    call(SETUP, 1, ctypes.byref(context))
    address = ctypes.addressof(ctypes.c_char.from_buffer(content))
    # data, key, flags, opcode, priority, descriptor, buffer, length, offset
    block = ctypes.create_string_buffer(struct.pack("<QIIHhIQQqQII", 0, 0, 0, PWRITE, 0, fd, address, SIZE, 0, 0, 0, 0))
    blocks = (ctypes.c_void_p * 1)(ctypes.addressof(block))
    call(SUBMIT, context, 1, blocks)
    call(GETEVENTS, context, 1, 1, event, None)
    if struct.unpack("<QQqq", event.raw)[2] != SIZE:
        raise OSError("it came short")


def requests():
    with open(waiting, encoding="ascii") as file:
        return int(file.read())


def until(condition):
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    sys.exit("waited in vain")


fd = os.open(path, os.O_WRONLY | os.O_APPEND)
until(lambda: requests() == 0)
os.kill(daemon, signal.SIGSTOP)
child = os.fork()
if child == 0:
    append(fd)
    os._exit(0)
try:
    until(lambda: requests() > 0)
    # It has submitted all of them, or waits for the first.
    time.sleep(0.5)
    count = requests()
finally:
    os.kill(daemon, signal.SIGCONT)
if os.waitpid(child, 0)[1] != 0:
    sys.exit("an append failed")
if count != 1:
    sys.exit(f"{count} requests of one append at a time")
with open(path, "rb") as file:
    if file.read() != bytes(4096) + content[:]:
        sys.exit("what was appended is in another order")
CODE
stop

# For what is changed through a socket there the kernel does not see.
start second "${listen[@]}" --mount-options writeback
grep -q 'with writeback the kernel does not see' second.err || say "no warning: $(cat second.err)"
stop
start third --mount-options writeback
grep -q 'with writeback' third.err && say "a warning where there is no socket: $(cat third.err)"
stop
whole
finish
