"""TPC-C on MariaDB over a volume on a modelled disk, with blocks stored as they are and by what they contain: SSD bytes written for each byte
the database wrote, and what that does to its transactions.

Double write buffer on, the strings of the tables random (go-tpc, pinned in `tpcc-load/`), a buffer pool of a tenth of the data, a cache in write-back
mode that holds all of it: what the database writes is measured, not the misses of a cache too small. The database is made once on a plain loop device; each run starts from a copy of it.

    BENCH_LIVE_SECONDS=120 BENCH_LIVE_WAREHOUSES=6 BENCH_LIVE_ROUNDS=1   how long, how much, how often
    BENCH_LIVE_WARM_SECONDS=90                not counted, before that
    BENCH_LIVE_CACHE_MIB=142                  another size of the cache
    BENCH_LIVE_IMAGE=PATH                     keeps the loaded database there, and takes it from there the next time"""

import json, os, re, shutil, statistics, subprocess, time
from rig import ROOT, TARGET, Daemon, begin, end, run, scratch, undo

SECONDS = int(os.environ.get("BENCH_LIVE_SECONDS", "120"))
WARM_SECONDS = int(os.environ.get("BENCH_LIVE_WARM_SECONDS", "90"))
WAREHOUSES = int(os.environ.get("BENCH_LIVE_WAREHOUSES", "6"))
ROUNDS = int(os.environ.get("BENCH_LIVE_ROUNDS", "1"))
LEVELS = os.environ.get("BENCH_LIVE_LEVELS", "off auto").split()
SET = os.environ.get("BENCH_LIVE_MODEL", "array")
# A warehouse takes 95 MB; what is added in a run, the redo log and the file system come on top.
DATA_MIB = 95 * WAREHOUSES
IMAGE_MIB = DATA_MIB * 5 // 4 + 400
CACHE_MIB = int(os.environ.get("BENCH_LIVE_CACHE_MIB", IMAGE_MIB))
THREADS = 16
PORT = 33306


def load_generator():
    """Builds go-tpc once. Without a Go compiler there is none."""
    program = os.path.join(TARGET, "go-tpc")
    if not os.path.exists(program) and shutil.which("go"):
        run("go", "build", "-o", program, "github.com/pingcap/go-tpc/cmd/go-tpc", cwd=os.path.join(ROOT, "scripts/benching/tpcc-load"))
    return program if os.path.exists(program) else None


class Database:
    """A private MariaDB in a file system on a device."""

    def __init__(self, device, new=False):
        self.place, self.mount = scratch("database"), scratch("mounted")
        os.makedirs(self.mount, exist_ok=True)
        os.makedirs(self.place, exist_ok=True)
        if new:
            run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
        run("mount", "-o", "noatime", device, self.mount)
        self.process = None
        undo.append(self.abandon)
        data, self.socket = f"{self.mount}/data", f"{self.place}/socket"
        if new:
            os.makedirs(data)
            run("mysql_install_db", "--no-defaults", "--auth-root-authentication-method=normal", f"--datadir={data}", "--user=root")
        options = {"datadir": data, "socket": self.socket, "port": PORT, "bind-address": "127.0.0.1", "user": "root",
                   "pid-file": f"{self.place}/pid", "log-error": f"{self.place}/log", "performance-schema": "OFF",
                   "innodb-buffer-pool-size": f"{max(DATA_MIB // 10, 24)}M", "innodb-log-file-size": "96M", "innodb-flush-method": "O_DIRECT",
                   "innodb-flush-log-at-trx-commit": 1, "innodb-doublewrite": 1, "innodb-flush-neighbors": 0,
                   "innodb-buffer-pool-dump-at-shutdown": "OFF", "innodb-buffer-pool-load-at-startup": "OFF",
                   "innodb-stats-auto-recalc": "OFF", "innodb-io-capacity": 2000, "innodb-fast-shutdown": 0, "max-connections": 100}
        words = [f"--{name}={value}" for name, value in options.items()]
        self.process = begin(["mariadbd", "--no-defaults", "--skip-name-resolve", "--skip-log-bin", *words])
        for _ in range(300):
            if self.process.poll() is not None:
                raise SystemExit(f"bench: MariaDB has ended; see {self.place}/log")
            if self("select 1", check=False):
                return
            time.sleep(0.2)
        raise SystemExit("bench: MariaDB does not answer within a minute")

    def __call__(self, statement, check=True, timeout=60):
        command = ["mysql", "--no-defaults", "-u", "root", f"--socket={self.socket}", "-N", "-e", statement]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
        if check and done.returncode:
            raise SystemExit(f"bench: `{statement}`: {done.stderr.strip()}")
        return done.stdout.strip()

    def abandon(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if os.path.ismount(self.mount):
            run("umount", self.mount)

    def stop(self):
        """All of it: nothing is left to be purged or merged by the next that starts with these tables."""
        self("shutdown", timeout=300)
        self.process.wait(300)
        end(self.process)
        run("umount", self.mount)


def tpcc(program, *words, timeout):
    return run(program, "tpcc", "-H", "127.0.0.1", "-P", str(PORT), "-U", "root", "-D", "tpcc", "--warehouses", str(WAREHOUSES), *words, timeout=timeout)


def prepared(program):
    """The image of a loaded database that was shut down with nothing left to do."""
    image = os.environ.get("BENCH_LIVE_IMAGE") or scratch("loaded.img")
    if os.path.exists(image):
        return image
    run("truncate", "-s", f"{IMAGE_MIB}M", image)
    loop = run("losetup", "-f", "--show", "--direct-io=on", image).strip()
    undo.append(lambda: subprocess.run(["losetup", "-d", loop], capture_output=True))
    database = Database(loop, new=True)
    database("create database tpcc")
    tpcc(program, "prepare", "-T", "4", "--no-check", timeout=1200)
    # What the optimiser knows of the tables is counted now, not when it pleases: without it, tables are read as wholes.
    for table in database("show tables in tpcc").split():
        database(f"analyze table tpcc.{table}", timeout=300)
    database.stop()
    run("losetup", "-d", loop)
    return image


def one_run(program, image, level):
    disk = scratch("disk.img")
    run("cp", "--sparse=always", image, disk)
    daemon = Daemon(f"live-{level}")
    ram_mib = max(CACHE_MIB // 8, 16)
    daemon("pool", "create", "p", "--ssd", f"{daemon.place}/ssd.img", "--size", f"{CACHE_MIB}MiB", "--ram", f"{ram_mib}MiB", "--content", level)
    told = daemon("volume", "add", "v", "--backing", f"model:{SET}:{disk}", "--pool", "p", "--mode", "write-back", "--export", "loop")
    device = re.search(r"/dev/loop\d+", told)[0]
    database = Database(device)
    drive = lambda seconds: tpcc(program, "run", "-T", str(THREADS), "--time", f"{seconds}s", "--interval", "10s", timeout=seconds + 120)
    drive(WARM_SECONDS)
    before = daemon.stats()
    text = drive(SECONDS)
    stats = difference(daemon.stats(), before)
    content = json.loads(daemon("pool", "show", "p", "--json"))["content_stats"] or {}
    database.stop()
    daemon("volume", "remove", "v")
    end(daemon.process)
    run("e2fsck", "-fn", disk)
    tpmc = re.search(r"tpmC: ([0-9.]+)", text)
    orders = [float(each) for each in re.findall(r"\[Current\] NEW_ORDER - Takes\(s\): [0-9.]+, Count: \d+, TPM: ([0-9.]+)", text)]
    reads = stats["read_hits_ram"] + stats["read_hits_ssd"] + stats["read_misses"]
    return {
        "warm_seconds": WARM_SECONDS, "tpmC": float(tpmc[1]) if tpmc else statistics.mean(orders),
        "host_bytes": stats["written_bytes"], "ssd_bytes": stats["ssd_written_bytes"], "flushes": stats["flushes"], "writes": stats["writes"],
        "hit_ratio": round((stats["read_hits_ram"] + stats["read_hits_ssd"]) / max(reads, 1), 4),
        "admitted_bytes": stats["admitted_bytes"], "destaged_bytes": stats["destaged_bytes"],
        "bypassed": {reason: count for reason, count in stats["bypassed"].items() if count},
        "content_stats": content, "latency_ns": stats["latency_ns"],
    }


def difference(after, before):
    """Counters of a while; latencies stay those since the start."""
    if isinstance(after, dict):
        return {key: value if key == "latency_ns" else difference(value, before[key]) for key, value in after.items()}
    return after - before if after is not None and before is not None else after


def measure():
    program = load_generator()
    missing = [name for name in ("mariadbd", "mysql_install_db", "mysql", "losetup", "mkfs.ext4") if not shutil.which(name)]
    if program is None or missing or os.geteuid() != 0:
        print(f"live: skipped: it needs root, a Go compiler and {', '.join(missing) or 'MariaDB'}")
        return []
    image = prepared(program)
    rows = {level: [] for level in LEVELS}
    for _ in range(ROUNDS):
        for level in LEVELS:
            rows[level].append(one_run(program, image, level))
            found = rows[level][-1]
            print(f"{level:<6} host {found['host_bytes'] >> 20} MiB, SSD {found['ssd_bytes'] >> 20} MiB, {found['tpmC']:.0f} tpmC, "
                  f"{found['flushes']} flushes, hits {found['hit_ratio']:.1%}", flush=True)
    return [{"what": "live_tpcc_ssd_bytes", "unit": "host bytes / SSD bytes", "content": level, "seconds": SECONDS, "warehouses": WAREHOUSES,
             "model": SET, "cache_mib": CACHE_MIB, "value": round(statistics.median(run["host_bytes"] / run["ssd_bytes"] for run in runs), 2),
             "at_least": 10 if level == "auto" else None, "runs": runs} for level, runs in rows.items()]
