"""What the control plane costs: the daemon at rest with a hundred volumes, and what a busy volume loses while somebody watches it."""

import os, socket, statistics, sys, threading, time
from rig import ROUNDS, SECONDS, SIZE_MIB, Daemon, begin, cpu_ns, end, fio, random_file, scratch

IDLE_S = int(os.environ.get("BENCH_IDLE_S", "20"))
VOLUMES = 100
# What a page of the console asks for beside the stream: the map of the volume it shows.
MAP_EVERY_S = 5


def watch(path, name):
    """A console by its requests: the stream of samples, and the map of one volume every few seconds. Reads and throws away."""
    os.nice(19)

    def ask(request):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(f"GET /api/v1{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            while connection.recv(1 << 16):
                pass

    def maps():
        while True:
            ask(f"/volumes/{name}/map?cells=4096")
            time.sleep(MAP_EVERY_S)

    threading.Thread(target=maps, daemon=True).start()
    ask("/stream")


def idle():
    daemon = Daemon("control-idle")
    daemon("pool", "create", "p", "--ssd", f"{daemon.place}/ssd.img", "--size", "256MiB", "--ram", "64MiB")
    for number in range(VOLUMES):
        backing = scratch(f"small-{number}.img")
        with open(backing, "wb") as file:
            file.truncate(16 << 20)
        daemon("volume", "add", f"v{number}", "--backing", backing, "--pool", "p", "--export", "nbd")
    time.sleep(5)
    before = cpu_ns(daemon.pid)
    time.sleep(IDLE_S)
    alone = (cpu_ns(daemon.pid) - before) / 1e9 / IDLE_S
    watcher = begin([sys.executable, __file__, f"{daemon.place}/hearth.sock", "v0"])
    time.sleep(2)
    before = cpu_ns(daemon.pid)
    time.sleep(IDLE_S)
    watched = (cpu_ns(daemon.pid) - before) / 1e9 / IDLE_S
    end(watcher)
    end(daemon.process)
    return alone, watched


def busy():
    daemon = Daemon("control-busy")
    backing = random_file("control.img", SIZE_MIB)
    uri = daemon.volume(backing, "--export", "nbd", "--admission", "always", ssd_mib=3 * SIZE_MIB)[0]
    daemon("volume", "warm", "v")
    rows = []
    # More rounds than elsewhere: two percent are asked for, and a run alone differs by more.
    for number in range(max(ROUNDS, 3) * 4):
        row = {}
        for watched in ((False, True) if number % 2 else (True, False)):
            watcher = begin([sys.executable, __file__, f"{daemon.place}/hearth.sock", "v"]) if watched else None
            # What a page costs while it is open, not what starting Python does.
            time.sleep(2)
            row[watched] = fio(uri, 32, 1, seconds=SECONDS)["iops"]
            if watcher:
                end(watcher)
        rows.append(row)
    end(daemon.process)
    return statistics.median(row[True] / row[False] for row in rows), statistics.median(row[False] for row in rows)


def measure():
    alone, watched = idle()
    ratio, iops = busy()
    rows = [{"what": f"idle CPU, {VOLUMES} volumes, part of a core", "value": round(alone, 5), "at_most": 0.005},
            {"what": f"idle CPU, {VOLUMES} volumes, one console", "value": round(watched, 5)},
            {"what": "IOPS of SSD hits over NBD, depth 32, nobody watches", "value": round(iops)},
            {"what": "the same with a console, part of it", "value": round(ratio, 4), "at_least": 0.98}]
    for row in rows:
        print(f"{row['what']:<64} {row['value']:>12}  {row.get('at_most', row.get('at_least', ''))}")
    return rows


if __name__ == "__main__":
    watch(sys.argv[1], sys.argv[2])
