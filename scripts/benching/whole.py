"""Operations on whole devices: discards, zeroes, mkfs and fstrim of large sparse volumes, what they cost, and what another client's cached
reads cost meanwhile."""

import os, threading, time
from rig import SIZE_MIB, Daemon, cpu_ns, fio, random_file, run, scratch, undo

TIB = 1 << 40
SIZES_TIB = (1, 20)
AT_MOST_S = {"blkdiscard": {1: 1.0, 20: 10.0}, "blkdiscard --zeroout": {1: 1.0, 20: 10.0}, "mkfs.ext4": {1: 5.0, 20: 60.0},
             "fstrim": {1: 5.0, 20: 60.0}}
MOUNTED = "whole-mounted"


def sparse(size_tib):
    """A sparse file, in memory where the file system of the scratch directory takes none so large."""
    for path in (scratch(f"sparse-{size_tib}.img"), f"/dev/shm/hearth-bench-{os.getpid()}-{size_tib}.img"):
        try:
            with open(path, "wb") as file:
                file.truncate(size_tib * TIB)
        except OSError:
            os.path.exists(path) and os.remove(path)
            continue
        undo.append(lambda: os.path.exists(path) and os.remove(path))
        return path
    return None


def device_of(daemon, name, backing):
    # Direct I/O to a file in memory moves whole pages.
    sectors = ["--sector-size", "4096"] if backing.startswith("/dev/shm/") else []
    made = daemon("volume", "add", name, "--backing", backing, "--pool", "p", "--admission", "always", "--mode", "write-back", "--export", "loop", *sectors)
    return next(line for line in made.splitlines() if line.startswith("/dev/"))


def scatter(device, size_tib):
    """Some blocks all over the device, cached and dirty."""
    run("fio", "--name=s", "--ioengine=io_uring", "--direct=1", f"--filename={device}", "--rw=randwrite", "--bs=4k", "--iodepth=16",
        f"--size={size_tib}t", "--io_size=16m", "--norandommap", "--randrepeat=0")


def trim(device):
    place = scratch(MOUNTED)
    os.makedirs(place, exist_ok=True)
    run("mount", device, place)
    try:
        begun = time.monotonic()
        run("fstrim", place)
        return time.monotonic() - begun
    finally:
        run("umount", place)


def timed(*command):
    begun = time.monotonic()
    run(*command)
    return time.monotonic() - begun


def operations(device):
    return (("blkdiscard", lambda: timed("blkdiscard", "-f", device)),
            ("blkdiscard --zeroout", lambda: timed("blkdiscard", "-f", "--zeroout", device)),
            ("mkfs.ext4", lambda: timed("mkfs.ext4", "-q", "-F", device)),
            ("fstrim", lambda: trim(device)))


def meanwhile(other, operation, prepare):
    """Cached reads of another volume while the operation is done again and again."""
    found = {}
    reads = threading.Thread(target=lambda: found.update(fio(other, 1, 1)))
    reads.start()
    while reads.is_alive():
        prepare()
        operation()
    reads.join()
    return found


def measure():
    if os.geteuid() != 0:
        print("(the loop export needs root: not measured)")
        return []
    daemon = Daemon("whole")
    daemon("pool", "create", "p", "--ssd", f"{daemon.place}/ssd.img", "--size", f"{4 * SIZE_MIB}MiB", "--ram", "16MiB", "--content", "off")
    other = device_of(daemon, "other", random_file("plain.img", SIZE_MIB))
    daemon("volume", "warm", "other")
    results = []
    print(f"{'whole device (sparse file)':<28} {'TiB':>4} {'s':>8} {'at most':>8} {'CPU s':>7}   {'other p99 us':>12} {'quiet':>8} {'ratio':>6} (at most 3)")
    for size_tib in SIZES_TIB:
        backing = sparse(size_tib)
        if backing is None:
            print(f"(this file system takes no file of {size_tib} TiB: not measured)")
            continue
        name = f"v{size_tib}"
        device = device_of(daemon, name, backing)
        for what, operation in operations(device):
            is_mounted = what == "fstrim"
            prepare = (lambda: None) if is_mounted else (lambda: scatter(device, size_tib))
            if not is_mounted:
                scatter(device, size_tib)
            before = cpu_ns(daemon.pid)
            took_s = operation()
            cpu_s = (cpu_ns(daemon.pid) - before) / 1e9
            # What is beside the operation itself, such as the writes that come before it, is in both.
            quiet = meanwhile(other, lambda: time.sleep(0.05), prepare)
            busy = meanwhile(other, operation, prepare)
            ratio = busy["p99_us"] / quiet["p99_us"]
            most = AT_MOST_S[what][size_tib]
            results.append({"what": what, "size_tib": size_tib, "seconds": round(took_s, 3), "at_most": most, "cpu_seconds": round(cpu_s, 2),
                            "other_p99_us": busy["p99_us"], "quiet_p99_us": quiet["p99_us"], "ratio": round(ratio, 2), "ratio_at_most": 3})
            print(f"{what:<28} {size_tib:>4} {took_s:>8.3f} {most:>8} {cpu_s:>7.2f}   {busy['p99_us']:>12.1f} {quiet['p99_us']:>8.1f} {ratio:>6.2f}", flush=True)
        daemon("volume", "remove", name)
        os.remove(backing)
    return results
