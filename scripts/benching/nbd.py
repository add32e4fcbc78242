"""The NBD export over a Unix socket: SSD hits beside servers that read the same data from the same SSD, RAM hits beside servers that
have it in memory."""

import shutil
from rig import SIZE_MIB, Daemon, begin, drop_cached, fio, in_turns, paired, random_file, scratch, wait_for

CASES = ((1, 1), (1, 4), (32, 1), (32, 4))
# Depth and block size of writes, over one connection.
WRITES = ((1, "4k"), (32, "4k"), (1, "16k"), (32, "16k"))


def peer(name, *command):
    """Starts a server on a Unix socket of its own; `{socket}` in the command is that."""
    socket = scratch(f"{name}.sock")
    process = begin([word.format(socket=socket) for word in command])
    wait_for(socket)
    return f"nbd+unix:///?socket={socket}", process.pid


def cached_volume(name, plain, ram, *options):
    """hearth with all of the volume's data in the cache; gives URI and process."""
    daemon = Daemon(name)
    backing = f"{daemon.place}/backing.img"
    shutil.copy(plain, backing)
    made = daemon.volume(backing, "--admission", "always", "--export", "nbd", *options, ssd_mib=2 * SIZE_MIB, ram=ram)
    daemon("volume", "warm", "v")
    return next(line for line in made if line.startswith("nbd")), daemon


def writes(plain):
    """Random writes into the write-back cache, beside servers that write to the same SSD."""
    uri, daemon = cached_volume("back", plain, "4MiB", "--mode", "write-back", "--write-cache-depth", "300s")
    written = scratch("written.img")
    shutil.copy(plain, written)
    servers = {"hearth, write-back": (uri, daemon.pid),
               "qemu-nbd cache=none aio=io_uring": peer("qemu-w", "qemu-nbd", "--cache=none", "--aio=io_uring", "-f", "raw", "-t", "-e", "16", "-k", "{socket}", written),
               "nbdkit file cache=none": peer("kit-w", "nbdkit", "-f", "-U", "{socket}", "file", written, "cache=none")}
    ours = next(iter(servers))
    print(f"{'NBD, random writes (medians)':<38} {'QD':>3} {'size':>4} {'IOPS':>8} {'p50 us':>7} {'p99 us':>7} {'CPU us/op':>9} {'ours/peer':>9}")
    results = []
    for depth, size in WRITES:
        medians, found = in_turns(servers, lambda server: fio(server[0], depth, 1, server[1], rw="randwrite", more=(f"--bs={size}",)))
        for name, row in medians.items():
            ratio = None if name == ours else paired(found[ours], found[name])
            results.append({"server": name, "what": "write", "depth": depth, "connections": 1, "size": size, "ours_to_peer": ratio, **row})
            print(f"{name:<38} {depth:>3} {size:>4} {row['iops']:>8.0f} {row['p50_us']:>7.1f} {row['p99_us']:>7.1f} {row['server_cpu_ns'] / 1000:>9.1f} "
                  f"{f'{ratio:.2f}x' if ratio else '':>9}", flush=True)
    return results


def measure():
    plain = random_file("plain.img", SIZE_MIB)
    ssd_uri, ssd = cached_volume("ssd", plain, "4MiB")
    ram_uri, ram = cached_volume("ram", plain, f"{2 * SIZE_MIB}MiB")
    fio(ram_uri, 32, 1)
    qemu = ("qemu-nbd", "--cache=none", "--aio=io_uring", "-f", "raw", "-t", "-e", "16", "-k", "{socket}", plain)
    # What is in the page cache stays there in spite of cache=none where pages come in larger folios: so it is thrown out before
    # each round, and how many bytes came from storage is shown beside each figure.
    cold = ("nbdkit", "-f", "-U", "{socket}", "file", plain, "cache=none", "fadvise=random")
    hits = {"SSD": {"hearth, SSD hits": (ssd_uri, ssd.pid), "qemu-nbd cache=none aio=io_uring": peer("qemu", *qemu),
                    "nbdkit file cache=none, from the SSD": peer("cold", *cold)},
            "RAM": {"hearth, RAM hits": (ram_uri, ram.pid),
                    "nbdkit file, from the page cache": peer("kit", "nbdkit", "-f", "-U", "{socket}", "file", plain)}}

    def one(server, depth, jobs):
        if "cold.sock" in server[0]:
            drop_cached(plain)
        return fio(server[0], depth, jobs, server[1])

    print(f"{'NBD, 4 KiB random reads (medians)':<38} {'QD':>3} {'conn':>4} {'IOPS':>8} {'p50 us':>7} {'CPU us/op':>9} {'storage B/op':>12} {'ours/peer':>9}")
    results = []
    for depth, jobs in CASES:
        for servers in hits.values():
            # The page cache that one kind of server needs is what the other must not have.
            if any("page cache" in name for name in servers):
                open(plain, "rb").read()
            medians, found = in_turns(servers, lambda server: one(server, depth, jobs))
            ours = next(iter(servers))
            for name, row in medians.items():
                ratio = None if name == ours else paired(found[ours], found[name])
                results.append({"server": name, "depth": depth, "connections": jobs, "ours_to_peer": ratio, **row})
                print(f"{name:<38} {depth:>3} {jobs:>4} {row['iops']:>8.0f} {row['p50_us']:>7.1f} {row['server_cpu_ns'] / 1000:>9.1f} "
                      f"{row['storage_bytes']:>12.0f} {f'{ratio:.2f}x' if ratio else '':>9}", flush=True)
    results += writes(plain)
    for daemon in (ssd, ram):
        stats = daemon.stats()
        print(f"hearth counted {stats['read_hits_ssd']} SSD hits, {stats['read_hits_ram']} RAM hits, {stats['read_misses']} misses (the warming pass included)")
    return results
