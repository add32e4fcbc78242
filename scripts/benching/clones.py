"""Hit rate at equal SSD size on four cloned VM disks, with blocks stored as they are and by what they contain: how much of the disks fits.

The disk is an ext4 file system with files of this machine's /usr in it: of bin, lib and share, in the order of the hashes of their names, which
spreads the choice over all packages, each file at most 16 MiB. It is cloned four times. Each clone then goes its own way, as machines do within some
days: 4 % of the blocks that hold something are written over, in runs of 1 to 32 blocks, half of them with pieces of other files (what was installed
there and nowhere else), a quarter with log lines that carry the clone's name and its own times, and in a quarter a few short stretches of bytes change.
All from seeds: the same machine makes the same disks, but for the times in their inodes.

Four volumes share a pool of 15 % of what the disks hold. Random 4 KiB reads go to all blocks alike, without those that are all zero, since a cache
that keeps zeroes for nothing gains from them whatever else it can do. Read are four times as many blocks as there are, so that the cache turns over,
and then as many as there are, which are counted. All that is read is compared with the clone. With all blocks equally likely the hit rate is the
part of them that is cached: hit rate times what the disks hold is the working set that fits.

    BENCH_CLONES_ROUNDS=1 BENCH_CLONES_LEVELS="off auto"             how often, and which levels
    BENCH_CLONES_MIB=176 BENCH_CLONES_PERCENT=15 BENCH_CLONES_RATE=0 what a disk holds, the SSD's part of all, reads a second (0: as they come)"""

import hashlib, json, mmap, os, random, shutil, stat, statistics, struct, time
from rig import Daemon, end, run, scratch
from start import Reader

ROUNDS = int(os.environ.get("BENCH_CLONES_ROUNDS", "1"))
LEVELS = os.environ.get("BENCH_CLONES_LEVELS", "off auto").split()
DISK_MIB = int(os.environ.get("BENCH_CLONES_MIB", "176"))
RATE = int(os.environ.get("BENCH_CLONES_RATE", "0"))
CLONES = 4
BLOCK = 4096
LARGEST_FILE = 16 << 20
SSD_PART = float(os.environ.get("BENCH_CLONES_PERCENT", "15")) / 100
RAM_MIB = 16
CHANGED = 0.04
WARMING, COUNTED = 4, 1
# Requests in flight: of one batch, and in the mean a quarter of them on each volume.
BATCH = 64
GOAL = 3.5
# Shares of what the disk holds, about those of an installed system.
SOURCES = (("/usr/bin", 0.3), ("/usr/lib", 0.45), ("/usr/share", 0.25))


def files_of(directory):
    """Regular files below it with their sizes, in the order of the hashes of their names, those with several names once."""
    found, seen = [], set()
    for place, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(place, name)
            try:
                about = os.stat(path, follow_symlinks=False)
                named = path.encode()
            except (OSError, UnicodeEncodeError):
                continue
            if stat.S_ISREG(about.st_mode) and 0 < about.st_size <= LARGEST_FILE and os.access(path, os.R_OK):
                found.append((hashlib.sha256(named).digest(), path, about.st_size, (about.st_dev, about.st_ino)))
    for _, path, size, inode in sorted(found):
        if inode not in seen:
            seen.add(inode)
            yield path, size


def installed(image):
    """Makes the disk; gives the paths of files that are not on it."""
    tree = scratch("tree")
    others = []
    for directory, part in SOURCES:
        room, rest = DISK_MIB * part * 2**20, []
        for path, size in files_of(directory):
            whole = -(-size // BLOCK) * BLOCK
            if whole > room:
                rest.append(path)
                continue
            room -= whole
            target = tree + path
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(path, target)
            os.utime(target, (os.stat(path).st_mtime,) * 2)
        others += rest[:2000]
    random.Random("others").shuffle(others)
    # Number and seed of the file system are given, or each run would have directories in another order.
    own = "6a7c9f5e-2f0b-4c55-9d0e-3b1a5f1c7d21"
    run("mkfs.ext4", "-q", "-F", "-b", str(BLOCK), "-i", "8192", "-m", "0", "-U", own, "-E", f"hash_seed={own}", "-d", tree,
        image, f"{DISK_MIB * 5 // 4 + 16}M")
    shutil.rmtree(tree)
    return others


def log_lines(clone, chance, length):
    """Log-like text of one machine."""
    now = 1_700_000_000 + clone * 86_400 + chance.randrange(80_000)
    units = ("systemd[1]: Started session-{}.scope.", "sshd[{}]: Accepted publickey for admin from 10.0.3.{} port {} ssh2",
             "CRON[{}]: pam_unix(cron:session): session opened", "kernel: [{}.{}] TCP: request_sock_TCP: Possible SYN flooding on port {}",
             "app[{}]: GET /items/{} 200 {} ms", "dhclient[{}]: DHCPACK of 10.0.3.{} from 10.0.3.1")
    text = []
    size = 0
    while size < length:
        now += chance.expovariate(0.1)
        stamp = time.strftime("%b %d %H:%M:%S", time.gmtime(now))
        text.append(f"{stamp} vm-{clone} " + chance.choice(units).format(*(chance.randrange(1, 60_000) for _ in range(3))) + "\n")
        size += len(text[-1])
    return "".join(text).encode()[:length]


def diverge(image, clone, held, others):
    """Writes over a part of the blocks that hold something; gives how many."""
    chance = random.Random(f"clone {clone}")
    # Each clone has files of its own.
    files = iter(others[clone::CLONES])
    ready = b""
    done = set()
    with open(image, "r+b") as disk:
        while len(done) < len(held) * CHANGED:
            begin = chance.randrange(len(held))
            blocks = [block for block in held[begin:begin + chance.randint(1, 32)] if block not in done]
            kind = chance.choice(("file", "file", "log", "bytes"))
            length = len(blocks) * BLOCK
            while kind == "file" and len(ready) < length:
                path = next(files, None)
                if path is None:
                    kind = "log"
                    break
                # Of a large file not more than what a few runs take.
                with open(path, "rb") as file:
                    piece = file.read(1 << 20)
                ready += piece + bytes(-len(piece) % BLOCK)
            text = log_lines(clone, chance, length) if kind == "log" else b""
            for at, block in enumerate(blocks):
                if kind == "file":
                    data, ready = ready[:BLOCK], ready[BLOCK:]
                elif kind == "log":
                    data = text[at * BLOCK:(at + 1) * BLOCK]
                else:
                    disk.seek(block * BLOCK)
                    changed = bytearray(disk.read(BLOCK))
                    for _ in range(chance.randint(1, 4)):
                        stretch = chance.randint(4, 64)
                        where = chance.randrange(BLOCK - stretch)
                        changed[where:where + stretch] = chance.randbytes(stretch)
                    data = bytes(changed)
                disk.seek(block * BLOCK)
                disk.write(data)
                done.add(block)
    return len(done)


class Clone:
    """One disk: its bytes, and the numbers of the blocks that are not all zero."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as disk:
            self.bytes = mmap.mmap(disk.fileno(), 0, access=mmap.ACCESS_READ)
        zero = bytes(BLOCK)
        self.held = [block for block in range(len(self.bytes) // BLOCK) if self.bytes[block * BLOCK:(block + 1) * BLOCK] != zero]


class Pipeline(Reader):
    """Several reads at a time on one connection, each compared with what is on the disk."""

    def __init__(self, uri, clone):
        super().__init__(uri)
        self.socket.settimeout(60)
        self.clone = clone
        self.buffer = bytearray(BATCH * (16 + BLOCK))

    def send(self, blocks):
        self.blocks = blocks
        if blocks:
            self.socket.sendall(b"".join(struct.pack(">IHHQQI", 0x25609513, 0, 0, at, block * BLOCK, BLOCK) for at, block in enumerate(blocks)))

    def take_all(self):
        """Answers come in any order; one that tells of an error is short."""
        view, got, at = memoryview(self.buffer), 0, 0
        for _ in self.blocks:
            for needed in (at + 16, at + 16 + BLOCK):
                while got < needed:
                    more = self.socket.recv_into(view[got:len(self.blocks) * (16 + BLOCK)])
                    if not more:
                        raise SystemExit("bench: the server has closed")
                    got += more
                _, error, cookie = struct.unpack_from(">IIQ", view, at)
                if error:
                    raise SystemExit(f"bench: a read failed ({error})")
            where = self.blocks[cookie] * BLOCK
            # Not as a view: those are compared element by element.
            if self.buffer[at + 16:at + 16 + BLOCK] != self.clone.bytes[where:where + BLOCK]:
                raise SystemExit(f"bench: block {self.blocks[cookie]} of {self.clone.path} was read as something else")
            at += 16 + BLOCK


def read(connections, chance, count):
    """Reads so many blocks, uniform over all that hold something; gives the seconds it took."""
    every = [(index, block) for index, connection in enumerate(connections) for block in connection.clone.held]
    begun = time.monotonic()
    for done in range(0, count, BATCH):
        batch = [[] for _ in connections]
        for index, block in chance.choices(every, k=BATCH):
            batch[index].append(block)
        for connection, blocks in zip(connections, batch):
            connection.send(blocks)
        for connection in connections:
            connection.take_all()
        if RATE:
            time.sleep(max(begun + done / RATE - time.monotonic(), 0))
    return time.monotonic() - begun


def hits_and_misses(daemon):
    stats = [json.loads(daemon("stats", f"v{clone}", "--json")) for clone in range(CLONES)]
    return [sum(row[key] for row in stats) for key in ("read_hits_ram", "read_hits_ssd", "read_misses")]


def one_run(clones, level, turn):
    blocks = sum(len(clone.held) for clone in clones)
    # No pool is smaller than 64 MiB.
    ssd_mib = max(round(blocks * BLOCK * SSD_PART / 2**20), 64)
    daemon = Daemon(f"clones-{level}-{turn}")
    daemon("pool", "create", "p", "--ssd", f"{daemon.place}/ssd.img", "--size", f"{ssd_mib}MiB", "--ram", f"{RAM_MIB}MiB", "--content", level)
    connections = []
    for index, clone in enumerate(clones):
        told = daemon("volume", "add", f"v{index}", "--backing", clone.path, "--pool", "p", "--admission", "always", "--export", "nbd").splitlines()
        connections.append(Pipeline(next(line for line in told if line.startswith("nbd")), clone))
    # The same reads for each level.
    chance = random.Random(f"reads {turn}")
    took = read(connections, chance, WARMING * blocks)
    before = hits_and_misses(daemon)
    took += read(connections, chance, COUNTED * blocks)
    ram, ssd, misses = (after - earlier for after, earlier in zip(hits_and_misses(daemon), before))
    content = json.loads(daemon("pool", "show", "p", "--json"))["content_stats"] or {}
    written = json.loads(daemon("stats", "p", "--json"))["ssd_written_bytes"]
    for connection in connections:
        connection.close()
    end(daemon.process)
    shutil.rmtree(daemon.place)
    rate = (ram + ssd) / (ram + ssd + misses)
    return {"value": round(rate * blocks * BLOCK / 2**20, 1), "hit_rate": round(rate, 4), "ram_hit_rate": round(ram / (ram + ssd + misses), 4),
            "ssd_mib": ssd_mib, "ram_mib": RAM_MIB, "distinct_mib": round(blocks * BLOCK / 2**20, 1), "counted_reads": ram + ssd + misses,
            "ssd_written_bytes": written, "reads_per_second": round((WARMING + COUNTED) * blocks / took), "content_stats": content}


def measure():
    if not shutil.which("mkfs.ext4"):
        print("clones: skipped: it needs mkfs.ext4")
        return []
    original = scratch("original.img")
    others = installed(original)
    held = Clone(original).held
    clones = []
    for index in range(CLONES):
        path = scratch(f"clone-{index}.img")
        run("cp", "--sparse=always", original, path)
        changed = diverge(path, index, held, others)
        clones.append(Clone(path))
    keys = (hashlib.blake2b(clone.bytes[block * BLOCK:(block + 1) * BLOCK], digest_size=16).digest() for clone in clones for block in clone.held)
    different = len(set(keys)) * BLOCK / 2**20
    holds = sum(len(clone.held) for clone in clones) * BLOCK / 2**20
    print(f"{CLONES} clones hold {holds:.0f} MiB, {changed / len(held):.1%} of each changed; {different:.0f} MiB if equal blocks are counted once")
    runs = {level: [] for level in LEVELS}
    for turn in range(ROUNDS):
        for level in LEVELS:
            runs[level].append(one_run(clones, level, turn))
            found = runs[level][-1]
            print(f"{level:<6} {found['value']:.0f} MiB fit ({found['hit_rate']:.1%} hits, {found['ram_hit_rate']:.1%} in RAM) on {found['ssd_mib']} MiB "
                  f"of SSD, {found['ssd_written_bytes'] >> 20} MiB written to it, {found['reads_per_second']} reads/s", flush=True)
    rows = []
    for level, found in runs.items():
        middle = sorted(found, key=lambda row: row["value"])[len(found) // 2]
        rows.append({"what": "clones_working_set", "unit": "MiB that fit", "content": level, **middle,
                     "distinct_contents_mib": round(different, 1), "values": [row["value"] for row in found]})
        content = middle["content_stats"]
        if content:
            print(f"{level:<6} {content['reference_blocks']} reference, {content['associated_blocks']} associated and {content['independent_blocks']} "
                  f"independent blocks; {content['cached_bytes'] >> 20} MiB cached in {content['stored_bytes'] >> 20} MiB")
    if {"off", "auto"} <= set(LEVELS):
        most = holds / statistics.median(off["value"] for off in runs["off"])
        ratio = statistics.median(auto["value"] / off["value"] for off, auto in zip(runs["off"], runs["auto"]))
        rows.append({"what": "clones_working_set_ratio", "value": round(ratio, 2), "at_least": GOAL, "at_most_possible": round(most, 2)})
        print(f"the working set that fits grows {ratio:.2f} times (goal {GOAL}; if all of it fitted, {most:.2f})")
    return rows
