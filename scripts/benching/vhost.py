"""Disks for virtual machines over vhost-user: hits beside qemu-storage-daemon on the same SSD, by a front end of our own without a
machine, so that nothing is measured but the two servers and the way to them."""

import json, os, shutil
from rig import SECONDS, SIZE_MIB, TARGET, Daemon, begin, cpu_ns, drop_cached, in_turns, paired, random_file, run, scratch, storage_read_bytes, wait_for

# Depth, queues, what.
CASES = ((1, 1, "read"), (32, 1, "read"), (32, 2, "read"), (1, 1, "write"), (32, 1, "write"))


def guest(server, depth, queues, what):
    socket, pid = server
    before = (cpu_ns(pid), storage_read_bytes(pid))
    told = run(os.path.join(TARGET, "release/engine-bench"), "guest", socket, what, str(depth), str(queues), str(SECONDS), str(SIZE_MIB))
    row = json.loads(told)
    requests = max(row.pop("requests"), 1) * SECONDS / (SECONDS - 0.3)
    row["server_cpu_ns"] = round((cpu_ns(pid) - before[0]) / requests)
    row["storage_bytes"] = round((storage_read_bytes(pid) - before[1]) / requests)
    return row


def cached_volume(name, plain, ram):
    daemon = Daemon(name)
    backing = f"{daemon.place}/backing.img"
    shutil.copy(plain, backing)
    made = daemon.volume(backing, "--admission", "always", "--mode", "write-back", "--export", "vhost-user", ssd_mib=4 * SIZE_MIB, ram=ram)
    daemon("volume", "warm", "v")
    return next(line for line in made if line.endswith(".sock")), daemon


def peer(plain):
    socket = scratch("qsd.sock")
    process = begin(["qemu-storage-daemon", "--blockdev", f"driver=file,node-name=disk,filename={plain},aio=io_uring,cache.direct=on",
                     "--export", f"type=vhost-user-blk,id=e,node-name=disk,addr.type=unix,addr.path={socket},writable=on,num-queues=4"])
    wait_for(socket)
    return socket, process.pid


def measure():
    plain = random_file("plain.img", SIZE_MIB)
    ssd_socket, ssd = cached_volume("ssd", plain, "4MiB")
    ram_socket, ram = cached_volume("ram", plain, f"{2 * SIZE_MIB}MiB")
    drop_cached(plain)
    servers = {"hearth, SSD hits": (ssd_socket, ssd.pid), "hearth, RAM hits": (ram_socket, ram.pid),
               "qemu-storage-daemon on the SSD": peer(plain)}
    theirs = "qemu-storage-daemon on the SSD"
    guest(servers["hearth, RAM hits"], 32, 1, "read")
    print(f"{'vhost-user, 4 KiB at random (medians)':<38} {'':>5} {'QD':>3} {'queues':>6} {'IOPS':>8} {'p50 us':>7} {'p99 us':>7} {'CPU us/op':>9} "
          f"{'IOPS':>6} {'p99':>6} {'CPU':>6}  (ours to peer)")
    results = []
    for depth, queues, what in CASES:
        medians, found = in_turns(servers, lambda server: guest(server, depth, queues, what))
        for name, row in medians.items():
            ratios = {} if name == theirs else {key: paired(found[name], found[theirs], key) for key in ("iops", "p99_us", "server_cpu_ns")}
            results.append({"server": name, "what": what, "depth": depth, "queues": queues, "ours_to_peer": ratios or None, **row})
            shown = " ".join(f"{value:>5.2f}x" for value in ratios.values())
            print(f"{name:<38} {what:>5} {depth:>3} {queues:>6} {row['iops']:>8.0f} {row['p50_us']:>7.1f} {row['p99_us']:>7.1f} "
                  f"{row['server_cpu_ns'] / 1000:>9.2f} {shown}", flush=True)
    return results
