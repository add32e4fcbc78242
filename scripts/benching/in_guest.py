"""What ublk.py has run in the guest: `in_guest.py DIRECTORY-OF-EXAMPLES ROUNDS`. Prints a line of JSON for each figure."""

import json, os, platform, shutil, statistics, subprocess, sys, time

EXAMPLES, ROUNDS = sys.argv[1], int(sys.argv[2])
SIZE_MIB = 128
CASES = (("randread", "4k", 1), ("randread", "4k", 32), ("randwrite", "4k", 32), ("read", "1m", 4), ("write", "1m", 4))


def begin(*command):
    """Starts a server that prints its device."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return process.stdout.readline().split()[0]


def rublk(path):
    program = shutil.which("rublk")
    if not program:
        return None
    before = set(os.listdir("/dev"))
    subprocess.run([program, "add", "loop", "-f", path, "-q", "1", "-d", "128"], check=True, capture_output=True)
    for _ in range(100):
        new = [name for name in set(os.listdir("/dev")) - before if name.startswith("ublkb")]
        if new:
            return f"/dev/{new[0]}"
        time.sleep(0.1)
    raise SystemExit("rublk made no device")


def busy_ns():
    """Time of all processors that was not idle, without the waiting for I/O."""
    fields = [int(field) for field in open("/proc/stat").readline().split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def fio(target, rw, size, depth):
    before = busy_ns()
    command = ["fio", "--output-format=json", "--name=b", "--ioengine=io_uring", "--direct=1", f"--filename={target}", f"--rw={rw}", f"--bs={size}",
               f"--iodepth={depth}", "--time_based", "--runtime=2", f"--size={SIZE_MIB}m", "--norandommap", "--randrepeat=0"]
    job = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["jobs"][0]
    side = job["write"] if "write" in rw else job["read"]
    return {"iops": side["iops"], "busy_ns": (busy_ns() - before) / max(side["total_ios"], 1), "mib_s": side["bw_bytes"] / 2**20}


os.makedirs("/mnt/ram", exist_ok=True)
# A file system on a disk of memory: true direct I/O, which tmpfs has not.
subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0", "/dev/ram0"], check=True)
subprocess.run(["mount", "/dev/ram0", "/mnt/ram"], check=True)
path = "/mnt/ram/file"
block = os.urandom(1 << 20)
with open(path, "wb") as file:
    for _ in range(SIZE_MIB):
        file.write(block)
    os.fsync(file.fileno())
servers = {"the file itself": path, "null_blk (the client)": "/dev/nullb0", "rublk loop": rublk(path),
           "hearth ublk": begin(f"{EXAMPLES}/ublk_bare", path), "hearth loop": begin(f"{EXAMPLES}/loop_bare", path)}
servers = {name: target for name, target in servers.items() if target}
for rw, size, depth in CASES:
    found = {name: [] for name in servers}
    for turn in range(ROUNDS + 1):
        for name, target in servers.items():
            row = fio(target, rw, size, depth)
            # The first time is cold.
            if turn:
                found[name].append(row)
    middle = lambda name, key: statistics.median(row[key] for row in found[name])
    ratio = lambda name, other, key: statistics.median(a[key] / b[key] for a, b in zip(found[name], found[other]))
    client = middle("null_blk (the client)", "busy_ns")
    cost = lambda row, at: row["busy_ns"] - found["null_blk (the client)"][at]["busy_ns"]
    for name in servers:
        row = {"server": name, "what": f"{rw} {size}", "depth": depth, "kernel": platform.release(), "iops": round(middle(name, "iops")),
               "cpu_ns": round(middle(name, "busy_ns") - (client if "null" not in name else 0)), "mib_s": round(middle(name, "mib_s"))}
        if name.startswith("hearth"):
            row["iops_to_file"] = ratio(name, "the file itself", "iops")
            if "rublk loop" in servers:
                row["iops_to_rublk"] = ratio(name, "rublk loop", "iops")
                row["cpu_to_rublk"] = statistics.median(cost(a, at) / cost(b, at) for at, (a, b) in enumerate(zip(found[name], found["rublk loop"])))
            if name == "hearth ublk":
                row["cpu_to_loop"] = statistics.median(cost(a, at) / cost(b, at) for at, (a, b) in enumerate(zip(found[name], found["hearth loop"])))
        print(json.dumps(row), flush=True)
