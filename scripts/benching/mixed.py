"""Mixed load over modelled disks: what one client feels while others work. Each row has the limit that it is held to."""

import json, subprocess, time
from rig import Daemon, SCRATCH, begin, children, clean_up, run

# Blocks of the volume: what is written lies in front, what is read cold behind.
DISK_GIB = 8
COLD_READERS = 16


def client(device, *options, seconds):
    """One fio job on the device; its completion latencies in microseconds, its mean included."""
    text = run("fio", "--name=x", f"--filename={device}", "--direct=1", "--time_based", f"--runtime={seconds}", "--randrepeat=0",
               "--output-format=json", *options, cwd=SCRATCH)
    job = json.loads(text[text.index("{"):])["jobs"][0]
    side = job["read"] if job["read"]["total_ios"] else job["write"]
    at = {float(key): value / 1000 for key, value in side["clat_ns"]["percentile"].items()}
    return {"iops": round(side["iops"]), "mean_us": side["clat_ns"]["mean"] / 1000, "p50_us": at[50.0], "p99_us": at[99.0], "p999_us": at[99.9],
            "longest_us": side["clat_ns"]["max"] / 1000}


def beside(device, *options, seconds):
    """A client that works in the background; ended by `children`."""
    return begin(["fio", "--name=c", f"--filename={device}", "--direct=1", "--time_based", f"--runtime={seconds}", "--randrepeat=0",
                  "--ioengine=io_uring", "--minimal", *options], cwd=SCRATCH)


def ended(process):
    process.communicate()
    children.remove(process)


def volume(name, model, ssd_mib, *options):
    daemon = Daemon(name)
    run("truncate", "-s", f"{DISK_GIB}G", f"{daemon.place}/disk.img")
    made = daemon.volume(f"model:{model}:{daemon.place}/disk.img", "--mode", "write-back", "--export", "loop", *options, ssd_mib=ssd_mib, ram="16MiB")
    return daemon, next(line for line in made if line.startswith("/dev/loop"))


def awaited(rows):
    """A commit, and a redo log, alone and while others read cold blocks: what the SSD costs, whatever the disk does."""
    kinds = {"commit: 4 KiB write + fdatasync": ["--rw=randwrite", "--bs=4k", "--size=64M"],
             "redo: sequential 16 KiB write + fdatasync": ["--rw=write", "--bs=16k", "--offset=256M", "--size=96M"]}
    for what, options in kinds.items():
        _, device = volume("mixed", "7k2", 2048, "--write-cache-depth", "300s")
        write = [*options, "--ioengine=psync", "--fdatasync=1"]
        alone = client(device, *write, seconds=5)
        readers = beside(device, "--rw=randread", "--bs=4k", "--offset=2G", "--size=6G", f"--iodepth={COLD_READERS}", seconds=9)
        time.sleep(2)
        mixed = client(device, *write, seconds=5)
        ended(readers)
        rows.append({"what": f"{what}, alone", **alone})
        limits = {"p50_us_at_most": 1.3 * alone["p50_us"], "p99_us_at_most": 2 * alone["p99_us"]}
        rows.append({"what": f"{what}, beside {COLD_READERS} cold reads", **mixed, **limits})
        clean_up()


def destage(rows):
    """Cold reads while 200 writes a second are destaged, with the latency goal at its default of 50 ms."""
    for model in ("7k2", "array"):
        _, device = volume("mixed", model, 512, "--write-cache-depth", "5s")
        read = ["--ioengine=io_uring", "--rw=randread", "--bs=4k", "--offset=4G", "--size=4G", "--iodepth=1"]
        rows.append({"what": f"cold reads ({model}), alone", **client(device, *read, seconds=5)})
        writer = beside(device, "--rw=randwrite", "--bs=4k", "--size=2G", "--iodepth=1", "--rate_iops=200", seconds=36)
        time.sleep(14)
        rows.append({"what": f"cold reads ({model}), beside 200 destaged writes/s", **client(device, *read, seconds=20), "p99_us_at_most": 50_000})
        ended(writer)
        clean_up()


def synced(device, *options, seconds):
    """One client that flushes after each write; the percentiles of its flushes, in microseconds: the writes take less."""
    text = run("fio", "--name=x", f"--filename={device}", "--direct=1", "--time_based", f"--runtime={seconds}", "--randrepeat=0",
               "--output-format=json", "--ioengine=psync", "--rw=write", "--bs=4k", "--fsync=1", "--offset=3500m", "--size=4m", *options, cwd=SCRATCH)
    job = json.loads(text[text.index("{"):])["jobs"][0]
    at = {float(key): value / 1000 for key, value in job["sync"]["lat_ns"]["percentile"].items()}
    return {"iops": round(job["write"]["iops"]), "mean_us": job["sync"]["lat_ns"]["mean"] / 1000, "p50_us": at[50.0], "p99_us": at[99.0],
            "p999_us": at[99.9], "longest_us": job["sync"]["lat_ns"]["max"] / 1000}


def write_cache(rows):
    """A commit while destage fills the disk's own cache, which a flush of the disk would empty."""
    _, device = volume("mixed", "7k2-wce", 2048)
    alone = synced(device, seconds=5)
    run("fio", "--name=d", f"--filename={device}", "--direct=1", "--ioengine=io_uring", "--iodepth=32", "--rw=randwrite", "--bs=4k", "--size=3g",
        "--io_size=80m", "--randrepeat=0", cwd=SCRATCH)
    mixed = synced(device, seconds=10)
    rows.append({"what": "fsync of a 4 KiB write (7k2-wce), alone", **alone})
    limits = {"p50_us_at_most": 1.3 * alone["p50_us"], "p99_us_at_most": 2 * alone["p99_us"]}
    rows.append({"what": "fsync of a 4 KiB write (7k2-wce), beside destage", **mixed, **limits})
    clean_up()


def full(rows):
    """Writers that are always faster than destage: slowed down, not stopped."""
    _, device = volume("mixed", "7k2", 256)
    row = client(device, "--ioengine=io_uring", "--rw=randwrite", "--bs=4k", "--size=2G", "--iodepth=8", seconds=30)
    rows.append({"what": "random 4 KiB writes, depth 8, into a full 256 MiB cache", **row, "p999_us_at_most": 20 * row["mean_us"]})
    clean_up()


def neighbour(rows):
    """SSD hits of one volume while another one is flooded with writes. No limit yet."""
    daemon, flooded = volume("mixed", "array", 1024)
    run("dd", "if=/dev/urandom", f"of={daemon.place}/b.img", "bs=1M", "count=256")
    made = daemon("volume", "add", "b", "--backing", f"{daemon.place}/b.img", "--pool", "p", "--export", "loop").splitlines()
    device = next(line for line in made if line.startswith("/dev/loop"))
    daemon("volume", "warm", "b")
    read = ["--ioengine=io_uring", "--rw=randread", "--bs=4k", "--size=256M", "--iodepth=1"]
    rows.append({"what": "SSD hits of a neighbour, alone", **client(device, *read, seconds=4)})
    writer = beside(flooded, "--refill_buffers", "--rw=randwrite", "--bs=16k", "--size=4G", "--iodepth=32", seconds=14)
    time.sleep(4)
    rows.append({"what": "SSD hits of a neighbour, beside a flood of writes", **client(device, *read, seconds=8)})
    ended(writer)
    clean_up()


def measure():
    if subprocess.run(["losetup", "--version"], capture_output=True).returncode:
        raise SystemExit("bench: `mixed` needs loop devices: run it as root, with losetup")
    rows = []
    for part in (awaited, destage, write_cache, full, neighbour):
        part(rows)
    keys = ("p50_us", "p99_us", "p999_us")
    print(f"{'mixed load (modelled disks)':<64} {'IOPS':>7} {'p50 µs':>9} {'p99 µs':>9} {'p99.9 µs':>9}  at most")
    for row in rows:
        limits = [(key, row[f"{key}_at_most"]) for key in keys if f"{key}_at_most" in row]
        said = ", ".join(f"{key[:-3]} {limit:.0f}: {'kept' if row[key] <= limit else 'MISSED'}" for key, limit in limits)
        print(f"{row['what']:<64} {row['iops']:>7} {row['p50_us']:>9.0f} {row['p99_us']:>9.0f} {row['p999_us']:>9.0f}  {said}")
    return rows
