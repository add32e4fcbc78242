#!/usr/bin/env bash
# XFS says that direct I/O to a file with shared blocks needs 4096 bytes, and moves 512 all the same.
#
# Seen on Linux 6.18.44 with xfsprogs 6.1.0. `statx` gives the alignment that direct I/O needs (STATX_DIOALIGN). For a file of its own blocks it is 512.
# After a `cp --reflink` of it, stx_dio_offset_align is 4096 (stx_dio_read_offset_align, for reads alone, stays at 512); but a write of 512 bytes with
# O_DIRECT at an offset of 512 still succeeds and is read back, and the copy keeps its bytes. A program that believes `statx`, such as one that
# serves a disk image with 512-byte sectors, would refuse a file whose user has made a copy by reflink, for no need.
# Output seen:
#   own blocks: write needs 512, read needs 512, 512 bytes written and read back
#   shared blocks: write needs 4096, read needs 512, 512 bytes written and read back, the copy has its bytes
# Needs root, mkfs.xfs and Python 3.
set -euo pipefail
place=$(mktemp -d)
cleanup() {
  umount "$place/mounted" 2>/dev/null || true
  rm -rf "$place"
}
trap cleanup EXIT

truncate -s 400M "$place/disk.img"
mkfs.xfs -q -m reflink=1 "$place/disk.img"
mkdir "$place/mounted"
mount -o loop "$place/disk.img" "$place/mounted"
head -c 4M /dev/urandom > "$place/mounted/a"
sync -f "$place/mounted/a"

cat > "$place/probe.py" <<'PYTHON'
import ctypes, mmap, os, struct, subprocess, sys

path = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
STATX_DIOALIGN, STATX_DIO_READ_ALIGN = 0x2000, 0x20000

def needs():
    buffer = ctypes.create_string_buffer(256)
    assert libc.statx(-100, path.encode(), 0, STATX_DIOALIGN | STATX_DIO_READ_ALIGN, buffer) == 0
    return struct.unpack_from("I", buffer, 0x9C)[0], struct.unpack_from("I", buffer, 0xB4)[0]

def moved(at):
    file = os.open(path, os.O_RDWR | os.O_DIRECT)
    page = mmap.mmap(-1, 4096)
    page.write(b"x" * 4096)
    written = os.pwritev(file, [memoryview(page)[:512]], at)
    back = mmap.mmap(-1, 4096)
    os.preadv(file, [memoryview(back)[:512]], at)
    os.close(file)
    return written == 512 and back[:512] == b"x" * 512

own = needs()
assert moved(512)
print(f"own blocks: write needs {own[0]}, read needs {own[1]}, 512 bytes written and read back")
subprocess.run(["cp", "--reflink=always", path, path + ".copy"], check=True)
before = open(path + ".copy", "rb").read()
shared = needs()
assert moved(3 * 4096 + 512)
assert open(path + ".copy", "rb").read() == before
print(f"shared blocks: write needs {shared[0]}, read needs {shared[1]}, 512 bytes written and read back, the copy has its bytes")
assert (own, shared) == ((512, 512), (4096, 512)), "it is not so any more"
PYTHON
python3 "$place/probe.py" "$place/mounted/a"
