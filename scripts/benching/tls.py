"""The NBD export with TLS over TCP on loopback: hits beside nbdkit and qemu-nbd with TLS, same file, same certificates, same client."""

import os, shutil, socket, time
from rig import SIZE_MIB, Daemon, begin, drop_cached, fio, in_turns, paired, random_file, scratch

# Size of a request, fio's options for it, depth.
CASES = (("4 KiB", (), 32), ("1 MiB", ("--bs=1m",), 4))

NOBODY = 65534


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(port):
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"bench: nothing listens on port {port}")


def uri(port, name):
    return f"nbds://127.0.0.1:{port}/{name}"


def client_with(certificates):
    """Words before fio's: it allows no directory in the URI, and libnbd looks below the home directory, but not for root."""
    home = scratch("home")
    shutil.copytree(certificates, f"{home}/.pki/libnbd")
    if os.geteuid():
        return ("env", f"HOME={home}")
    for place, _, files in os.walk(home):
        for path in (place, *(os.path.join(place, name) for name in files)):
            os.chown(path, NOBODY, NOBODY)
    return ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "env", f"HOME={home}")


def peer(*command):
    port = free_port()
    process = begin([word.format(port=port) for word in command])
    wait_for_port(port)
    return uri(port, ""), process.pid


def cached_volume(name, plain, ram, authority=None):
    """hearth with all of the volume's data in the cache; gives URI, process and the directory of its certificates."""
    daemon = Daemon(name)
    if authority:
        shutil.copytree(authority, f"{daemon.place}/state/pki", dirs_exist_ok=True)
    else:
        daemon("pki", "init")
        daemon("pki", "issue", "bench")
    backing = f"{daemon.place}/backing.img"
    shutil.copy(plain, backing)
    port = free_port()
    # Large requests are read from the cache, too: that is what is compared.
    daemon.volume(backing, "--admission", "always", "--max-io-size", "32MiB", "--sequential-cutoff", "off",
                  "--export", f"nbd:127.0.0.1:{port}", "--tls", ssd_mib=2 * SIZE_MIB, ram=ram)
    daemon("volume", "warm", "v")
    return uri(port, "v"), daemon.pid, f"{daemon.place}/state/pki"


def measure():
    plain = random_file("plain.img", SIZE_MIB)
    ssd_uri, ssd, server = cached_volume("ssd", plain, "4MiB")
    ram_uri, ram, _ = cached_volume("ram", plain, f"{2 * SIZE_MIB}MiB", server)
    prefix = client_with(f"{server}/bench")
    qemu = ("qemu-nbd", "--object", f"tls-creds-x509,id=tls0,endpoint=server,dir={server},verify-peer=on", "--tls-creds", "tls0",
            "-b", "127.0.0.1", "-p", "{port}", "-f", "raw", "-t", "-e", "16", "--aio=io_uring")
    kit = ("nbdkit", "-f", "-i", "127.0.0.1", "-p", "{port}", "--tls=require", f"--tls-certificates={server}", "--tls-verify-peer", "file", plain)
    hits = {"SSD": {"hearth, SSD hits": (ssd_uri, ssd, False), "qemu-nbd cache=none aio=io_uring": (*peer(*qemu, "--cache=none", plain), False),
                    "nbdkit file cache=none, from the SSD": (*peer(*kit, "cache=none", "fadvise=random"), True)},
            "RAM": {"hearth, RAM hits": (ram_uri, ram, False), "qemu-nbd, from the page cache": (*peer(*qemu, "--cache=writeback", plain), False),
                    "nbdkit file, from the page cache": (*peer(*kit), False)}}

    def one(server, more, depth):
        target, pid, cold = server
        if cold:
            drop_cached(plain)
        return fio(target, depth, 1, pid, more=more, prefix=prefix)

    print(f"{'NBD over TLS, random reads (medians)':<38} {'size':>6} {'QD':>3} {'IOPS':>8} {'p50 us':>7} {'CPU us/op':>9} {'ours/peer':>9}")
    results = []
    for size, more, depth in CASES:
        for servers in hits.values():
            if any("page cache" in name for name in servers):
                open(plain, "rb").read()
            medians, found = in_turns(servers, lambda server: one(server, more, depth))
            ours = next(iter(servers))
            for name, row in medians.items():
                ratio = None if name == ours else paired(found[ours], found[name])
                results.append({"server": name, "size": size, "depth": depth, "ours_to_peer": ratio, **row})
                print(f"{name:<38} {size:>6} {depth:>3} {row['iops']:>8.0f} {row['p50_us']:>7.1f} {row['server_cpu_ns'] / 1000:>9.1f} "
                      f"{f'{ratio:.2f}x' if ratio else '':>9}", flush=True)
    return results
