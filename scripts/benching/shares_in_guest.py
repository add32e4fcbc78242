"""What shares.py has run in the guest: `shares_in_guest.py HEARTH ROUNDS`. Prints a line of JSON for each figure."""

import glob, json, os, platform, statistics, subprocess, sys, time

HEARTH, ROUNDS = sys.argv[1], int(sys.argv[2])
SIZE_MIB = 96
HOST = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"
INITIATOR = "iqn.2026-01.test:host"
CONFIG = "/sys/kernel/config"


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def put(path, value):
    with open(path, "w") as file:
        file.write(value)


def until(what, is_so):
    for _ in range(300):
        found = is_so()
        if found:
            return found
        time.sleep(0.1)
    raise SystemExit(f"it does not come about: {what}")


def appears(pattern, connect):
    """The device that comes with a connection."""
    before = set(glob.glob(pattern))
    connect()
    return until(pattern, lambda: sorted(set(glob.glob(pattern)) - before))[0]


def served(child):
    """Waits for a daemon that has started."""
    until("the daemon", lambda: child.poll() is None and subprocess.run([HEARTH, "pool", "list"], capture_output=True).returncode == 0)


def bcache(backing, cache):
    run("make-bcache", "-B", backing, "-C", cache, "--bucket", "64k", "--wipe-bcache")
    for device in (backing, cache):
        put("/sys/fs/bcache/register", device)
    until("bcache0", lambda: os.path.exists("/sys/block/bcache0/bcache/cache"))
    put("/sys/block/bcache0/bcache/sequential_cutoff", "0")
    for side in ("read", "write"):
        put(f"/sys/block/bcache0/bcache/cache/congested_{side}_threshold_us", "0")
    return "/dev/bcache0"


def hearth(backing, cache):
    os.makedirs("/run/hearth", exist_ok=True)
    os.environ.update(HEARTH_SOCKET="/run/hearth/socket", HEARTH_STATE="/run/state", HEARTH_CONFIG="")
    served(subprocess.Popen([HEARTH, "serve"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    run(HEARTH, "pool", "create", "p", "--ssd", cache, "--ram", "16MiB")
    run(HEARTH, "volume", "add", "v", "--backing", backing, "--pool", "p", "--mode", "write-back", "--export", "ublk", "--admission", "always",
        "--sequential-cutoff", "off", "--max-io-size", "1MiB")
    return json.loads(run(HEARTH, "volume", "show", "v", "--json"))["exports"]["ublk"]


def share_by_hand(device):
    """As hearth sets it up, on another device."""
    core, iqn = f"{CONFIG}/target/core/iblock_77/other", "iqn.2026-01.test:other"
    group = f"{CONFIG}/target/iscsi/{iqn}/tpgt_1"
    os.makedirs(core)
    put(f"{core}/control", f"udev_path={device}")
    put(f"{core}/enable", "1")
    for path in (f"{group}/lun/lun_0", f"{group}/np/127.0.0.1:3261"):
        os.makedirs(path)
    os.symlink(core, f"{group}/lun/lun_0/other")
    for name, value in (("authentication", "0"), ("demo_mode_write_protect", "0"), ("generate_node_acls", "1"), ("cache_dynamic_acls", "1")):
        put(f"{group}/attrib/{name}", value)
    put(f"{group}/enable", "1")
    nqn, port = "nqn.2026-01.test:other", f"{CONFIG}/nvmet/ports/1"
    subsystem = f"{CONFIG}/nvmet/subsystems/{nqn}"
    for path in (f"{subsystem}/namespaces/1", port):
        os.makedirs(path)
    put(f"{subsystem}/attr_allow_any_host", "1")
    put(f"{subsystem}/namespaces/1/device_path", device)
    put(f"{subsystem}/namespaces/1/enable", "1")
    for name, value in (("trtype", "tcp"), ("adrfam", "ipv4"), ("traddr", "127.0.0.1"), ("trsvcid", "4421")):
        put(f"{port}/addr_{name}", value)
    os.symlink(subsystem, f"{port}/subsystems/{nqn}")
    return (iqn, "127.0.0.1:3261"), (nqn, "4421")


def share(volume):
    for protocol in ("--iscsi", "--nvme-tcp"):
        run(HEARTH, "share", "add", volume, protocol)
    target = lambda protocol: json.loads(run(HEARTH, "share", "show", volume, protocol, "--json"))["target"]
    return (target("--iscsi"), "127.0.0.1:3260"), (target("--nvme-tcp"), "4420")


def iscsi(target, portal):
    run("iscsiadm", "-m", "discovery", "-t", "sendtargets", "-p", portal)
    return appears("/dev/sd?", lambda: run("iscsiadm", "-m", "node", "-T", target, "-p", portal, "--login"))


def nvme(target, port):
    return appears("/dev/nvme?n1", lambda: run("nvme", "connect", "-t", "tcp", "-a", "127.0.0.1", "-s", port, "-n", target, "-q", HOST, "-l", "-1"))


def fio(device, depth):
    command = ["fio", "--output-format=json", "--name=b", "--ioengine=io_uring", "--direct=1", f"--filename={device}", "--rw=randread", "--bs=4k",
               f"--iodepth={depth}", "--time_based", "--runtime=2", f"--size={SIZE_MIB}m", "--norandommap", "--randrepeat=0"]
    return json.loads(run(*command))["jobs"][0]["read"]["iops"]


for device in ("/dev/ram0", "/dev/ram2"):
    with open(device, "r+b", buffering=0) as file:
        for _ in range(160):
            file.write(os.urandom(1 << 20))
put("/etc/iscsi/initiatorname.iscsi", f"InitiatorName={INITIATOR}\n")
os.makedirs("/run/lock/iscsi", exist_ok=True)
run("iscsid")
other = share_by_hand(bcache("/dev/ram0", "/dev/ram1"))
device = hearth("/dev/ram2", "/dev/ram3")
ours = share("v")
pairs = {"LIO": (iscsi(*ours[0]), iscsi(*other[0])), "nvmet": (nvme(*ours[1]), nvme(*other[1]))}
# All of it is read into both caches.
for target in (device, "/dev/bcache0"):
    for _ in range(3):
        run("dd", f"if={target}", "of=/dev/null", "bs=64k", f"count={SIZE_MIB * 16}", "iflag=direct")
for by, (mine, its) in pairs.items():
    for depth in (1, 32):
        found = [(fio(mine, depth), fio(its, depth)) for _ in range(ROUNDS + 1)][1:]
        middle = lambda at: round(statistics.median(pair[at] for pair in found))
        row = {"by": by, "depth": depth, "kernel": platform.release(), "iops": middle(0), "bcache_iops": middle(1),
               "iops_to_bcache": statistics.median(a / b for a, b in found)}
        print(json.dumps(row), flush=True)
hits = json.loads(run(HEARTH, "stats", "v", "--json"))
print(json.dumps({"stats": {key: value for key, value in hits.items() if "hit" in key or "miss" in key}}), file=sys.stderr)
