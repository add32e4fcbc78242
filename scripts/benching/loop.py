"""The loop export beside qemu-storage-daemon's FUSE export with a loop device on it: the same data on the same SSD."""

import os, subprocess
from rig import SIZE_MIB, Daemon, begin, fio, in_turns, paired, random_file, run, scratch, undo, wait_for

SWITCH = "/sys/module/fuse/parameters/enable_uring"
CASES = (("randread", 1), ("randread", 32), ("randwrite", 1), ("randwrite", 32))


def attach(path):
    device = run("losetup", "--find", "--show", "--direct-io=on", path).strip()
    undo.append(lambda: run("losetup", "--detach", device))
    return device


def qemu(plain):
    """qemu-storage-daemon's FUSE export of a file, with a loop device on it."""
    mounted = scratch("qsd.img")
    open(mounted, "w").close()
    process = begin(["qemu-storage-daemon", "--blockdev", f"driver=file,node-name=f,filename={plain},cache.direct=on,aio=io_uring",
                     "--export", f"fuse,id=e,node-name=f,mountpoint={mounted},writable=on,growable=off"])
    for _ in range(100):
        if os.stat(mounted).st_size:
            break
        wait_for(mounted)
        subprocess.run(["sleep", "0.05"])
    return attach(mounted), process.pid


def cached(name, plain, ram, mode, export="loop"):
    daemon = Daemon(name)
    backing = f"{daemon.place}/backing.img"
    run("cp", plain, backing)
    made = daemon.volume(backing, "--admission", "always", "--mode", mode, "--export", export, "--write-cache-depth", "300s",
                         ssd_mib=2 * SIZE_MIB, ram=ram)
    daemon("volume", "warm", "v")
    return next(line for line in made if line.startswith("/dev/")), daemon.pid


def over_io_uring(name, plain, ram, mode):
    """The same with the kernel's switch for FUSE over io_uring on while the export is made; `None` where there is none (before Linux 6.14)."""
    if not os.path.exists(SWITCH):
        return None
    before = open(SWITCH).read()
    open(SWITCH, "w").write("Y")
    try:
        return cached(name, plain, ram, mode, "loop:fast")
    finally:
        open(SWITCH, "w").write(before)


def measure():
    if os.geteuid() != 0:
        print("(the loop export needs root: not measured)")
        return []
    plain = random_file("plain.img", SIZE_MIB)
    large = f"{2 * SIZE_MIB}MiB"
    servers = {"hearth, SSD": cached("ssd", plain, "4MiB", "write-back"),
               "hearth, SSD, over io_uring": over_io_uring("ssd-ring", plain, "4MiB", "write-back"),
               "hearth, RAM hits": cached("ram", plain, large, "write-back"),
               "hearth, RAM hits, over io_uring": over_io_uring("ram-ring", plain, large, "write-back"),
               "qemu-storage-daemon fuse + loop": qemu(plain)}
    servers = {name: server for name, server in servers.items() if server}
    for name in servers:
        if "RAM" in name:
            fio(servers[name][0], 32, 1)
    results = []
    print(f"{'loop device, 4 KiB (medians)':<34} {'':>9} {'QD':>3} {'IOPS':>8} {'p50 us':>7} {'server CPU ns/op':>17} {'ours/peer':>9}")
    for rw, depth in CASES:
        medians, found = in_turns(servers, lambda server: fio(server[0], depth, 1, server[1], rw=rw))
        theirs = next(name for name in servers if name.startswith("qemu"))
        for name, row in medians.items():
            ratio = None if name == theirs else paired(found[name], found[theirs])
            results.append({"server": name, "what": rw, "depth": depth, "ours_to_peer": ratio, **row})
            print(f"{name:<34} {rw:>9} {depth:>3} {row['iops']:>8.0f} {row['p50_us']:>7.1f} {row['server_cpu_ns']:>17.0f} {f'{ratio:.2f}x' if ratio else '':>9}", flush=True)
    costs = {row["server"]: row["server_cpu_ns"] for row in results if "RAM" in row["server"] and row["what"] == "randread" and row["depth"] == 32}
    for name, cost in costs.items():
        print(f"server CPU for a 4 KiB read ({name}, depth 32): {cost:.0f} ns; at most 1900: {cost / 1900:.2f}")
    return results
