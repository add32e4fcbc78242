"""What watching costs: instructions of the tap for a block, and a load of RAM hits with and without it, in turns."""

import os, re, shutil, statistics, subprocess
from rig import ROUNDS, SECONDS, SIZE_MIB, TARGET, Daemon, fio, in_turns, paired, random_file, scratch

# Bounds of the design: a block that is not sampled, one that is, and the observer as a share of one core.
UNTAKEN_AT_MOST, TAKEN_AT_MOST, OBSERVER_AT_MOST = 8, 30, 0.02
REQUESTS = 2000
# Shorter, the observer's once a second would be a matter of luck.
RUN_SECONDS = max(SECONDS, 5)
DEPTH, CONNECTIONS = 32, 4


def instructions(which, blocks):
    """All that a number of requests of so many blocks takes in the loop that is counted."""
    words = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no", "--toggle-collect=*tap_loop*",
             os.path.join(TARGET, "release/engine-bench"), which, str(REQUESTS), str(blocks)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or not found:
        raise SystemExit(f"bench: valgrind did not count {which}: {done.stderr[-300:]}")
    return int(found.group(1))


def counted():
    if not shutil.which("valgrind"):
        print("instructions of the tap are not counted: there is no valgrind")
        return []
    rows = []
    off = instructions("count-tap-off", 1)
    for which, at_most in (("untaken", UNTAKEN_AT_MOST), ("taken", TAKEN_AT_MOST)):
        few, many = (instructions(f"count-tap-{which}", blocks) for blocks in (16, 80))
        rows.append({"name": f"tap: a block, {which}", "value": round((many - few) / (REQUESTS * 64), 2), "at_most": at_most, "unit": "instructions"})
        # With all that is done once a request. A RAM hit of one block takes some 400 ns, most of it a copy.
        one = (instructions(f"count-tap-{which}", 1) - off) / REQUESTS
        rows.append({"name": f"tap: a request of one block, {which}", "value": round(one, 2), "at_most": None, "unit": "instructions"})
    return rows


def observer_ns(pid):
    """CPU time of the thread that thinks about what was sampled; none where nothing is watched."""
    for task in os.listdir(f"/proc/{pid}/task"):
        place = f"/proc/{pid}/task/{task}"
        if open(f"{place}/comm").read().strip() == "observer":
            return int(open(f"{place}/schedstat").read().split()[0])
    return 0


def volume(name, enabled, plain):
    """All of the volume's data in RAM."""
    config = scratch(f"{name}.toml")
    with open(config, "w") as file:
        file.write(f"insight.enabled = {'true' if enabled else 'false'}\n")
    daemon = Daemon(name, "--config", config)
    backing = f"{daemon.place}/backing.img"
    shutil.copy(plain, backing)
    made = daemon.volume(backing, "--admission", "always", "--export", "nbd", ssd_mib=2 * SIZE_MIB, ram=f"{2 * SIZE_MIB}MiB")
    daemon("volume", "warm", "v")
    return next(line for line in made if line.startswith("nbd")), daemon.pid


def measure():
    rows = counted()
    plain = random_file("plain.img", SIZE_MIB)
    servers = {"watched": volume("watched", True, plain), "not watched": volume("unwatched", False, plain)}

    def one(server):
        uri, pid = server
        before = observer_ns(pid)
        row = fio(uri, DEPTH, CONNECTIONS, pid, seconds=RUN_SECONDS)
        return {**row, "observer_share": (observer_ns(pid) - before) / 1e9 / RUN_SECONDS}

    for server in servers.values():
        one(server)
    medians, found = in_turns(servers, one, max(ROUNDS, 5))
    for name, row in medians.items():
        rows.append({"name": f"RAM hits over NBD, {name}", "value": row["iops"], "at_most": None, "unit": "requests/s", "depth": DEPTH,
                     "connections": CONNECTIONS, "server_cpu_ns": row["server_cpu_ns"], "p50_us": row["p50_us"], "p99_us": row["p99_us"]})
    of = {key: paired(found["watched"], found["not watched"], key) for key in ("iops", "server_cpu_ns")}
    rows.append({"name": "watched by not watched, within rounds: rate", "value": of["iops"], "at_most": None, "unit": "x"})
    rows.append({"name": "watched by not watched, within rounds: CPU of the daemon a request", "value": of["server_cpu_ns"], "at_most": None, "unit": "x"})
    share = statistics.median(row["observer_share"] for row in found["watched"])
    most = max(row["observer_share"] for row in found["watched"])
    rows.append({"name": "observer, median", "value": round(share, 4), "at_most": OBSERVER_AT_MOST, "unit": "of a core"})
    rows.append({"name": "observer, in its worst round", "value": round(most, 4), "at_most": None, "unit": "of a core"})
    print(f"{'insight':<72} {'ours':>10} {'at most':>9}")
    for row in rows:
        kept = "" if row["at_most"] is None else "kept" if row["value"] <= row["at_most"] else "MISSED"
        print(f"{row['name']:<72} {row['value']:>10} {row['at_most'] or '-':>9}  {row['unit']} {kept}")
    return rows
