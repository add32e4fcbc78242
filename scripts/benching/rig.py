"""What all benchmarks share: places, processes that end with us, daemons, fio, CPU time."""

import json, os, shutil, signal, statistics, subprocess, sys, time

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
TARGET = os.environ.get("CARGO_TARGET_DIR") or os.path.join(ROOT, "target")
HEARTH = os.path.join(TARGET, "release/hearth")
SCRATCH = os.path.join(TARGET, "bench-scratch")
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
SECONDS = int(os.environ.get("BENCH_SECONDS", "3"))
SIZE_MIB = 256
# What else runs on the machine disturbs less so, and all servers and clients of the benchmark alike.
NICE = -15 if os.geteuid() == 0 else 0
children = []
undo = []
os.nice(NICE)


def run(*command, timeout=600, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, **more)
    if done.returncode:
        raise SystemExit(f"bench: `{' '.join(command)}` ended with {done.returncode}: {done.stderr.strip() or done.stdout[-300:]}")
    return done.stdout


def build():
    run("cargo", "build", "--release", "--locked", "-q", "-p", "hearth", "-p", "bench", cwd=ROOT, timeout=3600)


def engine_bench(*words):
    return run(os.path.join(TARGET, "release/engine-bench"), *words)


def begin(command, env=None, **more):
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **more)
    children.append(process)
    return process


def end(process, how=signal.SIGTERM):
    process.send_signal(how)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    children.remove(process)


def clean_up():
    while undo:
        undo.pop()()
    for process in list(children):
        end(process)
    shutil.rmtree(SCRATCH, ignore_errors=True)


def scratch(name):
    os.makedirs(SCRATCH, exist_ok=True)
    return os.path.join(SCRATCH, name)


def wait_for(path):
    for _ in range(200):
        if os.path.exists(path):
            return
        time.sleep(0.05)
    raise SystemExit(f"bench: {path} did not appear")


def random_file(name, mib):
    path = scratch(name)
    run("dd", "if=/dev/urandom", f"of={path}", "bs=1M", f"count={mib}", "conv=fsync")
    return path


def drop_cached(path):
    """Throws a file's clean pages out of the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


class Daemon:
    """A `hearth serve` with a state directory of its own."""

    def __init__(self, name, *words):
        self.words = words
        self.place = scratch(name)
        os.makedirs(self.place, exist_ok=True)
        self.env = dict(os.environ, HEARTH_STATE=f"{self.place}/state", HEARTH_SOCKET=f"{self.place}/hearth.sock")
        self.start()

    def start(self):
        self.process = begin([HEARTH, "serve", *self.words], env=self.env)
        self.process.stdout.readline()

    @property
    def pid(self):
        return self.process.pid

    def __call__(self, *words):
        return run(HEARTH, *words, env=self.env)

    def volume(self, backing, *options, ssd_mib, ram="4MiB"):
        """A pool and a volume `v`; gives what `volume add` printed, line by line."""
        # fio writes nearly the same buffers again and again, which no peer makes use of: blocks are stored as they are here.
        self("pool", "create", "p", "--ssd", f"{self.place}/ssd.img", "--size", f"{ssd_mib}MiB", "--ram", ram, "--content", "off")
        return self("volume", "add", "v", "--backing", backing, "--pool", "p", *options).splitlines()

    def stats(self):
        return json.loads(self("stats", "v", "--json"))


def cpu_ns(pid):
    """CPU time of a process, threads that have ended included: exact in sum, to ten milliseconds."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def storage_read_bytes(pid):
    """Bytes that the process caused to be read from storage, and not from the page cache."""
    return next(int(line.split()[1]) for line in open(f"/proc/{pid}/io") if line.startswith("read_bytes"))


def fio(target, depth, jobs, pid=None, rw="randread", seconds=SECONDS, size_mib=SIZE_MIB, more=(), ios=None, prefix=()):
    """One run of fio on an NBD URI, or on a file or device (io_uring, O_DIRECT): for some seconds, or for a number of I/Os."""
    where = ["--ioengine=nbd", f"--uri={target}"] if "://" in target else ["--ioengine=io_uring", "--direct=1", f"--filename={target}"]
    length = [f"--io_size={ios * 4}k"] if ios else ["--time_based", f"--runtime={seconds}"]
    before = (cpu_ns(pid), storage_read_bytes(pid)) if pid else (0, 0)
    text = run(*prefix, "fio", "--output-format=json", "--name=b", *where, f"--rw={rw}", "--bs=4k", f"--iodepth={depth}", f"--numjobs={jobs}",
               "--group_reporting", "--lat_percentiles=1", *length, f"--size={size_mib}m", "--norandommap", "--randrepeat=0",
               *more, cwd=SCRATCH)
    job = json.loads(text[text.index("{"):])["jobs"][0]
    side = job["write"] if rw == "randwrite" else job["read"]
    ops = max(side["total_ios"], 1)
    # From the submission on, not from its end: a direct read spends a third of its time in the call that submits it.
    percentile = side["lat_ns"]["percentile"]
    row = {"iops": round(side["iops"]), "p50_us": percentile["50.000000"] / 1000, "p99_us": percentile["99.000000"] / 1000}
    if pid:
        row["server_cpu_ns"] = round((cpu_ns(pid) - before[0]) / ops)
        row["storage_bytes"] = round((storage_read_bytes(pid) - before[1]) / ops)
    return row


def in_turns(servers, measure, rounds=ROUNDS):
    """Measures each server once a round; gives for each the medians and, by round, what was found."""
    found = {name: [] for name in servers}
    for _ in range(rounds):
        for name, server in servers.items():
            found[name].append(measure(server))
    return {name: {key: statistics.median(row[key] for row in rows) for key in rows[0]} for name, rows in found.items()}, found


def paired(ours, theirs, key="iops"):
    """Median of the ratios within rounds: what disturbs the machine for long disturbs both."""
    return round(statistics.median(a[key] / b[key] for a, b in zip(ours, theirs)), 3)
