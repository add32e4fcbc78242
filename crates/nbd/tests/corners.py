"""Corners of the protocol that the usual tools do not reach, through libnbd with its own safety checks switched off.

Usage: corners.py SOCKET EXPORT
"""

import errno
import os
import sys

import nbd

socket, export = sys.argv[1:]


def connect(**settings):
    handle = nbd.NBD()
    handle.set_strict_mode(0)
    handle.set_export_name(export)
    handle.set_request_structured_replies(settings.get("structured", True))
    if settings.get("context", True):
        handle.add_meta_context("base:allocation")
    handle.connect_unix(socket)
    return handle


def fails(code, call, *arguments, **keywords):
    try:
        call(*arguments, **keywords)
    except nbd.Error as error:
        assert error.errnum == code, f"{call} {arguments}: {error.errnum} instead of {code}"
    else:
        raise AssertionError(f"{call} {arguments} succeeded")


handle = connect()
size = handle.get_size()
assert handle.get_structured_replies_negotiated()
assert handle.can_meta_context("base:allocation")
assert handle.get_block_size(nbd.SIZE_MINIMUM) == 512

# Structured reads, whole and with DF, at every alignment within two blocks.
data = os.urandom(16384)
handle.pwrite(data, 8192, nbd.CMD_FLAG_FUA)
for start in range(0, 8192, 512):
    for length in (512, 4096, 4608):
        chunks = []
        got = handle.pread_structured(
            length, 8192 + start, lambda buf, offset, status, err: chunks.append((offset, len(buf), status)),
            nbd.CMD_FLAG_DF)
        assert got == data[start:start + length]
        assert chunks == [(8192 + start, length, nbd.READ_DATA)]

# Block status covers the range, with one extent if one is asked for.
extents = []
handle.block_status(size, 0, lambda context, offset, entries, err: extents.append((context, offset, entries)))
assert extents == [("base:allocation", 0, [size, 0])], extents
extents.clear()
handle.block_status(65536, 512, lambda *found: extents.append(found[:3]), nbd.CMD_FLAG_REQ_ONE)
assert extents == [("base:allocation", 512, [65536, 0])], extents

# Refusals have the protocol's numbers, and the connection lives on.
fails(errno.EINVAL, handle.pread, 512, size)
fails(errno.EINVAL, handle.pread, 512, 100)
fails(errno.ENOSPC, handle.pwrite, bytes(1024), size - 512)
fails(errno.ENOSPC, handle.zero, 1024, size - 512)
fails(errno.EINVAL, handle.trim, 1024, size - 512)
fails(errno.EINVAL, handle.block_status, 1024, size - 512, lambda *ignored: 0)
fails(errno.ENOTSUP, handle.zero, 4096, 0, nbd.CMD_FLAG_FAST_ZERO)
fails(errno.EINVAL, handle.cache, 4096, 0)
fails(errno.EINVAL, handle.pwrite, bytes(512), 0, 1 << 9)
assert handle.pread(16384, 8192) == data

# Zeroes and trims, with and without FUA and NO_HOLE.
for flags in (0, nbd.CMD_FLAG_FUA, nbd.CMD_FLAG_NO_HOLE, nbd.CMD_FLAG_FUA | nbd.CMD_FLAG_NO_HOLE):
    handle.pwrite(data, 8192)
    handle.zero(8192, 8192 + 512, flags)
    assert handle.pread(16384, 8192) == data[:512] + bytes(8192) + data[8704:]
handle.trim(4096, 8192, nbd.CMD_FLAG_FUA)
handle.flush()

# Many at once, in any order.
buffers = {}
for number in range(64):
    buffer = nbd.Buffer(4096)
    cookie = handle.aio_pread(buffer, 8192 + 4096 * (number % 4))
    buffers[cookie] = (number, buffer)
first = handle.pread(16384, 8192)
while buffers:
    for cookie in [cookie for cookie in buffers if handle.aio_command_completed(cookie)]:
        number, buffer = buffers.pop(cookie)
        assert buffer.to_bytearray() == first[4096 * (number % 4):][:4096]
    if buffers:
        handle.poll(-1)

# Two connections: what one wrote and flushed, the other reads; a flush here covers a write there.
assert handle.can_multi_conn()
other = connect()
other.pwrite(b"\x5a" * 4096, 1 << 20)
handle.flush()
assert handle.pread(4096, 1 << 20) == b"\x5a" * 4096
other.shutdown()

# Without structured replies: reads and errors in simple form, no block status.
simple = connect(structured=False, context=False)
assert not simple.get_structured_replies_negotiated()
assert simple.pread(4096, 1 << 20) == b"\x5a" * 4096
fails(errno.EINVAL, simple.pread, 512, size)
fails(errno.EINVAL, simple.pread, 512, 0, nbd.CMD_FLAG_DF)
assert simple.pread(512, 1 << 20) == b"\x5a" * 512
simple.shutdown()

# The handshake option by option: an unknown export leaves the conversation open.
negotiating = nbd.NBD()
negotiating.set_opt_mode(True)
negotiating.connect_unix(socket)
names = []
negotiating.opt_list(lambda name, description: names.append(name))
assert export in names, names
negotiating.set_export_name("there is no such export")
fails(errno.ENOENT, negotiating.opt_go)
negotiating.set_export_name(export)
contexts = []
negotiating.add_meta_context("base:")
negotiating.opt_list_meta_context(lambda name: contexts.append(name))
assert contexts == ["base:allocation"], contexts
negotiating.opt_info()
assert negotiating.get_size() == size
negotiating.opt_abort()

handle.shutdown()
print("all corners seen")
