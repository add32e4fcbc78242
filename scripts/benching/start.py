"""An idle daemon, and the first hit after a start with ten million cached blocks."""

import json, os, shutil, signal, socket, struct, time
from nbd import cached_volume
from rig import HEARTH, SIZE_MIB, Daemon, begin, cpu_ns, end, engine_bench, random_file, run, scratch

BLOCKS = int(os.environ.get("BENCH_START_BLOCKS", "10000000"))


def idle():
    """CPU time of a daemon with a pool, a volume with data in it, and a client that is connected and silent."""
    uri, daemon = cached_volume("idle", random_file("plain.img", SIZE_MIB), "64MiB")
    client = Reader(uri)
    client.read(0)
    time.sleep(5)
    before, begun = cpu_ns(daemon.pid), time.monotonic()
    time.sleep(20)
    share = (cpu_ns(daemon.pid) - before) / (time.monotonic() - begun) / 1e9
    client.close()
    print(f"idle daemon: {share:.4%} of a core (at most 0.5 %)")
    return [{"what": "idle daemon, share of a core", "value": share, "at_most": 0.005}]


class Reader:
    """A client of its own: what a start is measured with must not take longer than what is measured."""

    def __init__(self, uri):
        self.socket = socket.socket(socket.AF_UNIX)
        path = uri.split("socket=")[1]
        name = uri.split("://")[1].split("?")[0].lstrip("/").encode()
        self.socket.connect(path)
        self.take(18)
        # Fixed newstyle without zeroes; NBD_OPT_GO without information asked for.
        self.socket.sendall(struct.pack(">I", 3))
        body = struct.pack(">I", len(name)) + name + struct.pack(">H", 0)
        self.socket.sendall(struct.pack(">QII", 0x49484156454F5054, 7, len(body)) + body)
        while True:
            _, _, kind, length = struct.unpack(">QIII", self.take(20))
            self.take(length)
            if kind == 1:
                return
            if kind & 0x80000000:
                raise ConnectionError(f"the export is refused ({kind:#x})")

    def take(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionError("the server has closed")
            data += more
        return data

    def read(self, offset):
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 0, 1, offset, 4096))
        _, error, _ = struct.unpack(">IIQ", self.take(16))
        if error:
            raise OSError(error, "read failed")
        return self.take(4096)

    def close(self):
        self.socket.close()


def first_hit(daemon, uri, block):
    """Starts the daemon; gives how long it takes until it has answered a read of that block, and whether that was a hit."""
    begun = time.monotonic()
    daemon.process = begin([HEARTH, "serve"], env=daemon.env)
    while True:
        try:
            client = Reader(uri)
            client.read(block * 4096)
            break
        except (OSError, ConnectionError):
            if time.monotonic() - begun > 120:
                raise SystemExit("bench: no answer within two minutes after a start")
            time.sleep(0.002)
    took = time.monotonic() - begun
    client.close()
    stats = daemon.stats()
    return took, stats["read_hits_ssd"] + stats["read_hits_ram"] > 0 and stats["read_misses"] == 0


def filled(daemon, export):
    """Ten million cached blocks under a volume `v`; the daemon is stopped. Gives where it is offered, and what was filled; `None` where
    there is no room."""
    size_mib = BLOCKS * 4096 // 2**20
    free_mib = shutil.disk_usage(os.path.dirname(scratch("x"))).free >> 20
    if free_mib < 4096:
        end(daemon.process)
        return None
    run("truncate", "-s", f"{size_mib}M", f"{daemon.place}/backing.img")
    # A sparse file: `pool create` would reserve its whole size.
    run("truncate", "-s", f"{size_mib + size_mib // 16 + 512}M", f"{daemon.place}/ssd.img")
    daemon("pool", "create", "p", "--ssd", f"{daemon.place}/ssd.img", "--ram", "16MiB", "--content", "off")
    made = daemon("volume", "add", "v", "--backing", f"{daemon.place}/backing.img", "--pool", "p", "--export", export).splitlines()
    end(daemon.process)
    return made[0], json.loads(engine_bench("fill", f"{daemon.place}/ssd.img", str(BLOCKS)))


def measure():
    daemon = Daemon("start")
    made = filled(daemon, "nbd")
    if not made:
        print("(start: less than 4 GiB free: not measured)")
        return []
    uri, fill = made
    rows = []

    def row(what, at_most):
        took, hit = first_hit(daemon, uri, BLOCKS // 3)
        rows.append({"what": what, "seconds": round(took, 3), "at_most": at_most, "ratio": round(took / at_most, 2), "is_hit": hit, "cached_blocks": fill["blocks"]})
        memory = next(int(line.split()[1]) // 1024 for line in open(f"/proc/{daemon.pid}/status") if line.startswith("VmRSS"))
        rows[-1]["resident_mib"] = memory

    row("after the first fill, as after a crash", 5.0)
    end(daemon.process, signal.SIGKILL)
    row("after SIGKILL", 5.0)
    end(daemon.process)
    row("after a clean stop", 1.0)
    end(daemon.process)
    row("after a clean stop", 1.0)
    end(daemon.process, signal.SIGKILL)
    row("after SIGKILL", 5.0)
    title = f"start of a pool with {fill['blocks']:,} cached blocks"
    print(f"{title:<56} {'first hit, s':>12} {'at most':>8} {'ratio':>6} {'resident MiB':>13}")
    for row in rows:
        hit = "" if row["is_hit"] else "  NOT A HIT"
        print(f"{row['what']:<56} {row['seconds']:>12.3f} {row['at_most']:>8} {row['ratio']:>6.2f} {row['resident_mib']:>13}{hit}")
    return rows
