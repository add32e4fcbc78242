"""What the control plane costs: the daemon at rest with a hundred volumes, and what a busy volume loses while somebody watches it."""

import json, math, os, shutil, signal, socket, statistics, sys, threading, time
from rig import ROUNDS, SIZE_MIB, Daemon, begin, cpu_ns, end, fio, random_file, scratch

IDLE_S = int(os.environ.get("BENCH_IDLE_S", "20"))
VOLUMES = 100
# What a page of the console asks for beside the stream: the map of the volume it shows.
MAP_EVERY_S = 5
# Two percent are asked for, and neighbouring windows alone differ by more: many pairs.
PAIRS = max(ROUNDS, 3) * 8


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


def reads(path):
    """Reads the volume `v` has answered so far, and when that was asked."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(b"GET /api/v1/stats/v HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        text = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    return json.loads(text.partition(b"\r\n\r\n")[2])["reads"], time.monotonic()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def planes_ns(pid):
    """CPU time of the daemon's threads that are not reactors."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            name = open(f"/proc/{pid}/task/{task}/comm").read()
            spent = int(open(f"/proc/{pid}/task/{task}/schedstat").read().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += 0 if name.startswith("reactor") else spent
    return total


def compared(daemon, pairs, window_s, settle_s, begin_watching):
    """Read rates of windows with a watcher by those of windows without, in turns under one load that never pauses; and the
    CPU the control plane spends while it is watched."""
    path = f"{daemon.place}/hearth.sock"
    ratios, alone, planes = [], [], []
    for number in range(pairs):
        row = {}
        for watched in ((False, True) if number % 2 else (True, False)):
            watcher = begin_watching() if watched else None
            time.sleep(settle_s)
            spent, (done, at) = planes_ns(daemon.pid), reads(path)
            time.sleep(window_s)
            later, until = reads(path)
            if watched:
                planes.append((planes_ns(daemon.pid) - spent) / 1e9 / (until - at))
                end(watcher)
            row[watched] = (later - done) / (until - at)
        alone.append(row[False])
        ratios.append(row[True] / row[False])
    return ratios, statistics.median(alone), statistics.median(planes)


def interval(ratios):
    """Median, and the order statistics that hold it with 95 % of confidence (the sign test's)."""
    ordered, n = sorted(ratios), len(ratios)
    away, mass = 0, 0.5 ** n
    while mass <= 0.025 and away < n // 2:
        away += 1
        mass += math.comb(n, away) * 0.5 ** n
    low = max(away - 1, 0)
    return statistics.median(ordered), ordered[low], ordered[n - 1 - low]


def busy():
    daemon = Daemon("control-busy", "--listen", f"127.0.0.1:{free_port()}")
    backing = random_file("control.img", SIZE_MIB)
    uri = daemon.volume(backing, "--export", "nbd", "--admission", "always", ssd_mib=3 * SIZE_MIB)[0]
    daemon("volume", "warm", "v")
    load = begin(["fio", "--name=b", "--ioengine=nbd", f"--uri={uri}", "--rw=randread", "--bs=4k", "--iodepth=32", f"--size={SIZE_MIB}m",
                  "--norandommap", "--time_based", "--runtime=3600"], cwd=scratch(""))
    time.sleep(3)
    rows = {"requests": compared(daemon, PAIRS, 2, 1, lambda: begin([sys.executable, __file__, f"{daemon.place}/hearth.sock", "v"]))}
    chromium = shutil.which("chromium")
    if chromium:
        # As behind the watcher above: a browser is on another machine, so it gets what the others leave.
        def browser():
            return begin(["nice", "-n", "40", chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--ignore-certificate-errors",
                          f"--user-data-dir={scratch('chromium')}", "--remote-debugging-port=0", daemon("console").strip()])
        rows["browser"] = compared(daemon, max(PAIRS // 3, 6), 5, 5, browser)
    end(load, signal.SIGINT)
    end(daemon.process)
    return rows


def measure():
    alone, watched = idle()
    rows = [{"what": f"idle CPU, {VOLUMES} volumes, part of a core", "value": round(alone, 5), "at_most": 0.005},
            {"what": f"idle CPU, {VOLUMES} volumes, one console", "value": round(watched, 5)}]
    names = {"requests": "a console by its requests", "browser": "the console in Chromium, on the same cores at the lowest priority"}
    for kind, (ratios, iops, planes) in busy().items():
        median, low, high = interval(ratios)
        rows += [{"what": "IOPS of SSD hits over NBD, depth 32, nobody watches", "value": round(iops)},
                 {"what": f"IOPS with {names[kind]}, part of that", "value": round(median, 4), "low": round(low, 4), "high": round(high, 4), "pairs": len(ratios), "at_least": 0.98},
                 {"what": "CPU of all threads but the reactors meanwhile, part of a core", "value": round(planes, 5)}]
    for row in rows:
        spread = f"({row['low']} - {row['high']}, {row['pairs']} pairs)" if "low" in row else ""
        print(f"{row['what']:<92} {row['value']:>9}  {row.get('at_most', row.get('at_least', '')):<6} {spread}")
    return rows


if __name__ == "__main__":
    watch(sys.argv[1], sys.argv[2])
