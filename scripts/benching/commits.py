"""Commits of real engines beside their own bulk work, in write-back mode over a modelled disk with its write cache on (the usual setting), and in turn
on a bare part of the same SSD through the same export. What is held to a limit is the quotient of the two.

    BENCH_COMMITS_SECONDS=8     of each load
Engines: SQLite, PostgreSQL and MariaDB; LMDB and RocksDB where Python has `lmdb` and `rocksdict` (pip install lmdb rocksdict)."""

import importlib.util, json, os, shutil, sqlite3, statistics, subprocess, threading, time
from mixed import client
from rig import Daemon, begin, clean_up, end, run, scratch, undo

SECONDS = int(os.environ.get("BENCH_COMMITS_SECONDS", "8"))
MODEL = "7k2-wce"
DISK_GIB, SSD_MIB = 8, 6144
CLIENTS = 16
MIB = 1 << 20
# A large transaction.
LARGE_MIB = 40


def loop_in(lines):
    """The loop device among what was printed."""
    return next(word for line in lines for word in line.split() if word.startswith("/dev/loop"))


class Places:
    """A volume `v` and a bare disk `s` of one daemon, each as a loop device."""

    def __init__(self, name, looks=True):
        # Without looks, hearth reads nothing of the disk by itself: it does not ask what lies on the volume.
        config = scratch(f"{name}.toml")
        with open(config, "w") as file:
            file.write(f"insight.enabled = {'true' if looks else 'false'}\n")
        self.daemon = Daemon(name, "--config", config)
        run("truncate", "-s", f"{DISK_GIB}G", f"{self.daemon.place}/disk.img")
        made = self.daemon.volume(f"model:{MODEL}:{self.daemon.place}/disk.img", "--mode", "write-back", "--export", "loop", ssd_mib=SSD_MIB, ram="32MiB")
        self.volume = loop_in(made)
        self.ssd = loop_in(self.daemon("disk", "create", "s", "--pool", "p", "--size", "2GiB", "--export", "loop").splitlines())

    def mounted(self, device):
        """A fresh ext4 on the device; nothing of it is initialised later, beside what is measured."""
        place = scratch("on-" + os.path.basename(device))
        os.makedirs(place, exist_ok=True)
        run("mkfs.ext4", "-q", "-F", "-N", "8192", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", device)
        run("mount", "-o", "noatime", device, place)
        undo.append(lambda: subprocess.run(["umount", place], capture_output=True))
        return place


def figures(latencies_s):
    """Of latencies in seconds: their percentiles in microseconds."""
    ordered = sorted(latencies_s)
    at = lambda part: 1e6 * ordered[min(int(len(ordered) * part), len(ordered) - 1)]
    return {"count": len(ordered), "p50_us": at(0.5), "p99_us": at(0.99), "longest_us": 1e6 * ordered[-1]}


def timed(work):
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def clients(count, commit, seconds=SECONDS):
    """So many threads that commit again and again; their latencies in seconds. `commit(thread, number)` returns when it is durable."""
    until, found = time.monotonic() + seconds, [[] for _ in range(count)]

    def work(nth):
        while time.monotonic() < until:
            found[nth].append(timed(lambda: commit(nth, len(found[nth]))))

    threads = [threading.Thread(target=work, args=(nth,)) for nth in range(count)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return sum(found, [])


def beside(bulk, commits):
    """What the commits take while `bulk(number)` runs again and again."""
    stop, done = threading.Event(), []

    def work():
        while not stop.is_set():
            done.append(timed(lambda: bulk(len(done))))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        found = commits()
    finally:
        stop.set()
        thread.join()
    return found, done


class Sqlite:
    """One writer: its large transactions come between its small ones."""

    def __init__(self, place, journal):
        self.db = sqlite3.connect(f"{place}/{journal}.db", isolation_level=None, check_same_thread=False)
        for pragma in (f"journal_mode={journal}", "synchronous=FULL", "cache_size=-200000"):
            self.db.execute(f"pragma {pragma}")
        self.db.execute("create table t (id integer primary key, v blob)")

    def commit(self, _nth, number):
        self.db.execute("insert into t (v) values (?)", (os.urandom(100),))

    def large(self, _number):
        pieces = [(os.urandom(4000),) for _ in range(LARGE_MIB * MIB // 4096)]
        self.db.execute("begin")
        self.db.executemany("insert into t (v) values (?)", pieces)
        return timed(lambda: self.db.execute("commit"))

    def rounds(self):
        small, large = [], []
        for _ in range(4):
            small += [timed(lambda: self.commit(0, 0)) for _ in range(200)]
            large.append(self.large(0))
        return {"small commits": small, f"commits of {LARGE_MIB} MiB": large}

    def end(self):
        self.db.close()


class Lmdb:
    """The same with its own commit: data pages, flush, one page, flush."""

    def __init__(self, place):
        import lmdb
        self.env = lmdb.open(f"{place}/lmdb", map_size=2 << 30)
        self.next = 0

    def put(self, count, size):
        with self.env.begin(write=True) as transaction:
            for _ in range(count):
                self.next += 1
                transaction.put(self.next.to_bytes(8, "big"), os.urandom(size), append=True)

    def rounds(self):
        small, large = [], []
        for _ in range(4):
            small += [timed(lambda: self.put(1, 100)) for _ in range(200)]
            large.append(timed(lambda: self.put(LARGE_MIB * MIB // 4000, 3900)))
        return {"small commits": small, f"commits of {LARGE_MIB} MiB": large}

    def end(self):
        self.env.close()


class Rocksdb:
    """Many clients, and a compaction of everything beside them."""

    def __init__(self, place):
        import rocksdict
        self.db = rocksdict.Rdict(f"{place}/rocksdb")
        self.durable = rocksdict.WriteOptions()
        self.durable.sync = True
        for key in range(LARGE_MIB * 1024):
            self.db[key.to_bytes(8, "big")] = os.urandom(1000)
        self.db.flush()

    def commit(self, nth, number):
        self.db.put(f"c{nth}-{number}".encode(), os.urandom(100), self.durable)

    def bulk(self, number):
        for key in range(number % 4, LARGE_MIB * 1024, 4):
            self.db[key.to_bytes(8, "big")] = os.urandom(1000)
        self.db.flush()
        self.db.compact_range(None, None)

    def rounds(self):
        found, _ = beside(self.bulk, lambda: clients(CLIENTS, self.commit))
        return {f"{CLIENTS} clients beside a compaction": found}

    def end(self):
        self.db.close()


class Lines:
    """A command-line client of a server that is asked one thing at a time."""

    def __init__(self, words, env=None):
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1, env=env)

    def ask(self, statement):
        self.process.stdin.write(statement + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer.startswith("done"):
            raise SystemExit(f"bench: `{statement[:80]}` was answered with {answer!r}")

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)


class Server:
    """What PostgreSQL and MariaDB have in common: connections that insert, and one that does the bulk work."""

    def begin_clients(self):
        self.lines = [self.connect() for _ in range(CLIENTS + 1)]

    def commit(self, nth, number):
        self.lines[nth].ask(f"insert into t (v) values ('{os.urandom(50).hex()}');{self.done}")

    def rounds(self):
        alone = clients(1, self.commit, SECONDS / 2)
        found, _ = beside(lambda number: [self.lines[CLIENTS].ask(line + self.done) for line in self.bulk], lambda: clients(CLIENTS, self.commit))
        return {"one client": alone, f"{CLIENTS} clients beside {self.told}": found}

    def end(self):
        [lines.end() for lines in self.lines]
        end(self.process)


class Postgres(Server):
    told = f"transactions of {LARGE_MIB} MiB and checkpoints"
    done = "\\echo done"
    bulk = [f"insert into large select n, repeat(md5(n::text), 31) from generate_series(1, {LARGE_MIB * 1024}) n;", "checkpoint;", "truncate large;"]

    def __init__(self, place):
        programs = sorted(os.listdir("/usr/lib/postgresql"))[-1]
        self.programs, data = f"/usr/lib/postgresql/{programs}/bin", f"{place}/pg"
        os.makedirs(data)
        shutil.chown(data, "postgres", "postgres")
        self.socket = "/tmp"
        as_postgres = ["runuser", "-u", "postgres", "--"]
        run(*as_postgres, f"{self.programs}/initdb", "-D", data, "-A", "trust", "--no-sync", cwd="/")
        options = {"listen_addresses": "", "unix_socket_directories": self.socket, "port": 54399, "shared_buffers": "64MB", "max_wal_size": "256MB"}
        words = sum((["-c", f"{name}={value}"] for name, value in options.items()), [])
        self.process = begin([*as_postgres, f"{self.programs}/postgres", "-D", data, *words], cwd="/")
        for _ in range(300):
            if subprocess.run(self.psql() + ["-c", "select 1"], capture_output=True).returncode == 0:
                break
            time.sleep(0.2)
        for statement in ("create table t (id bigserial, v text)", "create table large (id bigint, v text)"):
            run(*self.psql(), "-c", statement)
        self.begin_clients()

    def psql(self):
        return [f"{self.programs}/psql", "-h", self.socket, "-p", "54399", "-U", "postgres", "-qAtX", "-d", "postgres"]

    def connect(self):
        return Lines(self.psql())


class Mariadb(Server):
    told = "OPTIMIZE TABLE"
    done = "select 'done';"
    bulk = ["alter table large engine=innodb;"]

    def __init__(self, place):
        data, self.socket = f"{place}/maria", scratch("maria.sock")
        run("mysql_install_db", "--no-defaults", "--auth-root-authentication-method=normal", f"--datadir={data}", "--user=root")
        options = {"datadir": data, "socket": self.socket, "skip-networking": 1, "user": "root", "pid-file": scratch("maria.pid"), "log-error": scratch("maria.log"),
                   "innodb-buffer-pool-size": "128M", "innodb-log-file-size": "96M"}
        self.process = begin(["mariadbd", "--no-defaults", "--skip-log-bin", *[f"--{name}={value}" for name, value in options.items()]])
        for _ in range(300):
            if subprocess.run(self.mysql() + ["-e", "select 1"], capture_output=True).returncode == 0:
                break
            time.sleep(0.2)
        fill = f"insert into large select seq, repeat(md5(seq), 31) from seq_1_to_{LARGE_MIB * 1024}"
        tables = "create database d; use d; create table t (id bigint auto_increment primary key, v text); create table large (id bigint primary key, v text)"
        run(*self.mysql(), "-e", f"{tables}; {fill}")
        self.begin_clients()

    def mysql(self):
        return ["mysql", "--no-defaults", "-u", "root", f"--socket={self.socket}", "--batch", "--skip-column-names", "--unbuffered"]

    def connect(self):
        return Lines([*self.mysql(), "d"])


def engines():
    """Name, how it is made, and whether its round has commits beside bulk work; those that are there."""
    known = [("SQLite, journal", lambda place: Sqlite(place, "delete"), "sqlite3"), ("SQLite, WAL", lambda place: Sqlite(place, "wal"), "sqlite3"),
             ("LMDB", Lmdb, "lmdb"), ("RocksDB", Rocksdb, "rocksdict"), ("PostgreSQL", Postgres, "sqlite3"), ("MariaDB", Mariadb, "sqlite3")]
    for name, make, module in known:
        if importlib.util.find_spec(module):
            yield name, make
        else:
            print(f"bench: no {name}: pip install {module}")


def of_engines(rows):
    for name, make in engines():
        places, found = Places("commits"), {}
        for where in ("ssd", "volume"):
            engine = make(places.mounted(getattr(places, where)))
            found[where] = {what: figures(latencies) for what, latencies in engine.rounds().items()}
            engine.end()
        waited = {key: places.daemon.stats()[key] for key in ("flushes", "backing_flushes", "backing_flush_longest_ns", "bypassed")}
        for what, bare in found["ssd"].items():
            most = {"p50_us_at_most": 2 * bare["p50_us"]} | ({} if "MiB" in what and "beside" not in what else {"p99_us_at_most": 3 * bare["p99_us"]})
            rows.append({"what": f"{name}: {what}, bare SSD", **bare})
            rows.append({"what": f"{name}: {what}", **found["volume"][what], **most, "stats": waited})
        clean_up()


def partial_blocks(rows):
    """XFS writes its log in pieces of 1.5 KiB, or 5 KiB with larger buffers: parts of blocks."""
    places = Places("commits", looks=False)
    write = ["--ioengine=psync", "--rw=write", "--fdatasync=1", "--size=96m"]
    whole = client(places.volume, "--bs=4k", *write, seconds=SECONDS)
    rows.append({"what": "4 KiB write + fdatasync", **whole})
    for size, what in ((1536, "1.5 KiB"), (5120, "5 KiB")):
        before = places.daemon.stats()["backing_reads"]
        row = client(places.volume, f"--bs={size}", "--offset=1g", *write, seconds=SECONDS)
        most = {"p50_us_at_most": 1.5 * whole["p50_us"], "disk_reads_at_most": 0}
        rows.append({"what": f"{what} write + fdatasync", **row, "disk_reads": places.daemon.stats()["backing_reads"] - before, **most})
    clean_up()


def copies(rows):
    """What is copied goes to the disk, whatever came before it; what is told is the part that the SSD was given, in percent."""
    places = Places("commits")
    given = lambda: places.daemon.stats()["admitted_bytes"]
    commits = ["--ioengine=psync", "--rw=write", "--bs=4k", "--fsync=1", "--io_size=16k", "--size=1m"]
    run("fio", "--name=c", f"--filename={places.volume}", "--direct=1", *commits)
    before = given()
    run("dd", "if=/dev/zero", f"of={places.volume}", "bs=1M", "seek=1024", "oflag=direct", "count=400")
    rows.append({"what": "dd of 400 MiB after four commits, % on the SSD", "percent": 100 * (given() - before) / (400 * MIB), "percent_at_most": 5})
    place, source = places.mounted(places.volume), scratch("source")
    run("dd", "if=/dev/urandom", f"of={source}", "bs=1M", "count=1024")
    before = given()
    for how in (["cp", source, f"{place}/cp"], ["dd", f"if={source}", f"of={place}/dd", "bs=1M"]):
        run(*how)
        run("sync", "-f", place)
    rows.append({"what": "cp and dd of 1 GiB each to ext4, % on the SSD", "percent": 100 * (given() - before) / (2048 * MIB), "percent_at_most": 5})
    clean_up()


def measure():
    if subprocess.run(["losetup", "--version"], capture_output=True).returncode or os.geteuid():
        raise SystemExit("bench: `commits` needs loop devices: run it as root, with losetup")
    rows = []
    for part in (copies, partial_blocks, of_engines):
        part(rows)
    print(f"{f'commits (disk: model {MODEL})':<72} {'p50 µs':>9} {'p99 µs':>9} {'longest':>9}  at most")
    for row in rows:
        limits = [(key[:-8], row[key]) for key in row if key.endswith("_at_most")]
        said = ", ".join(f"{key} {limit:.0f}: {'kept' if row[key] <= limit else 'MISSED'}" for key, limit in limits)
        figure = lambda key: f"{row[key]:>9.1f}" if key in row else f"{'-':>9}"
        print(f"{row['what']:<72} {figure('percent' if 'percent' in row else 'p50_us')} {figure('p99_us')} {figure('longest_us')}  {said}")
    return rows
