"""What the cache does for a slow disk, and what it costs the SSD."""

import os, random, time
from rig import HEARTH, Daemon, begin, fio, run, scratch

SET = "7k2"
DISK_MIB = 16 << 10
# Dirty blocks: one 4 KiB block of 700, and one of 100. Sorting pays the more the denser they lie.
BLOCKS = (6000, 42000)


def destage():
    """Random dirty blocks brought home, beside the bare modelled disk that takes random blocks in the order in which they come."""
    bare_file = scratch("bare.img")
    run("truncate", "-s", f"{DISK_MIB}M", bare_file)
    bare = begin([HEARTH, "model", SET, bare_file, "--export", "nbd"], env=dict(os.environ, HEARTH_STATE=scratch("bare-state")))
    uri = next(word for line in bare.stdout for word in line.split() if "://" in word)
    daemon = Daemon("destage")
    run("truncate", "-s", f"{DISK_MIB}M", f"{daemon.place}/disk.img")
    made = daemon.volume(f"model:{SET}:{daemon.place}/disk.img", "--mode", "write-back", "--export", "nbd", "--write-cache-depth", "3600s", ssd_mib=512)
    ours = next(line for line in made if line.startswith("nbd"))
    rows = []
    for what, more in (("each flushed before the next", ["--fsync=1"]), ("not flushed", [])):
        taken = fio(uri, 1, 1, rw="randwrite", seconds=12, size_mib=DISK_MIB, more=more)["iops"]
        rows.append({"what": f"bare {SET}, arrival order, {what}", "blocks_per_s": taken})
    for blocks in BLOCKS:
        fio(ours, 32, 1, rw="randwrite", size_mib=DISK_MIB, ios=blocks)
        dirty = daemon.stats()["dirty_bytes"] // 4096
        begun = time.monotonic()
        daemon("volume", "destage", "v")
        took = time.monotonic() - begun
        rows.append({"what": f"hearth, destage of {dirty} random blocks", "blocks_per_s": dirty / took, "at_least": 5,
                     "ours_to_flushed": dirty / took / rows[0]["blocks_per_s"], "ours_to_cached": dirty / took / rows[1]["blocks_per_s"]})
    print(f"{f'destage to a modelled disk (set {SET}, a model), 4 KiB over {DISK_MIB >> 10} GiB':<76} {'blocks/s':>9}")
    for row in rows:
        print(f"{row['what']:<76} {row['blocks_per_s']:>9.0f}")
    for row in rows[2:]:
        print(f"{row['what']}, to arrival order: {row['ours_to_flushed']:.1f}x each flushed, {row['ours_to_cached']:.1f}x not flushed (goal: 5x)")
    return rows


def amplification():
    """SSD bytes written per byte admitted, on the demo's workload: data to cache 100 : 30, 80 % of I/O on 10 %, 80/20, depth 64."""
    data_mib = 1024
    daemon = Daemon("amplification")
    run("truncate", "-s", f"{data_mib}M", f"{daemon.place}/disk.img")
    rows = []
    for mode in ("write-through", "write-back"):
        made = daemon.volume(f"{daemon.place}/disk.img", "--mode", mode, "--export", "nbd", ssd_mib=data_mib * 30 // 100, ram="64MiB")
        uri = next(line for line in made if line.startswith("nbd"))
        hot = lambda seconds: run("fio", "--name=h", "--ioengine=nbd", f"--uri={uri}", "--rw=randrw", "--rwmixread=80", "--bs=4k", "--iodepth=64",
                                  "--random_distribution=zoned:80/10:20/90", "--time_based", f"--runtime={seconds}", f"--size={data_mib}m",
                                  "--norandommap", f"--randseed={random.randrange(1 << 30)}", cwd=daemon.place)
        hot(15)
        before = daemon.stats()
        hot(15)
        after = daemon.stats()
        grown = {key: after[key] - before[key] for key in ("ssd_written_bytes", "admitted_bytes", "read_hits_ram", "read_hits_ssd", "read_misses")}
        hits = grown["read_hits_ram"] + grown["read_hits_ssd"]
        rows.append({"mode": mode, "amplification": grown["ssd_written_bytes"] / max(grown["admitted_bytes"], 1), "at_most": 1.3,
                     "hit_rate": hits / max(hits + grown["read_misses"], 1), **grown})
        daemon("volume", "remove", "v")
        daemon("pool", "destroy", "p")
    print(f"{'write amplification, the hot-spot workload of the demo':<56} {'written MiB':>11} {'admitted MiB':>12} {'ratio':>6} {'at most':>8} {'hit rate':>9}")
    for row in rows:
        print(f"{row['mode']:<56} {row['ssd_written_bytes'] >> 20:>11} {row['admitted_bytes'] >> 20:>12} {row['amplification']:>6.2f} {row['at_most']:>8} {row['hit_rate']:>9.1%}")
    return rows
