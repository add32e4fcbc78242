"""Latency at queue depth 1: what an SSD hit over NBD costs beyond the SSD, beside the whole round trip of nbdkit's memory plugin; and by the
kernel's trace, how much of it is engine and reactor."""

import os, re, statistics, subprocess, time
from nbd import cached_volume, peer
from rig import SIZE_MIB, fio, in_turns, random_file, run, undo

TRACEFS = "/sys/kernel/tracing"
ENTER, SENDMSG = 426, 46  # io_uring_enter and sendmsg on x86-64
EVENT = re.compile(r"\[\d+\]\s+\S+\s+([\d.]+): (\w+): NR (\d+)(?: \(\w+, (\w+))?")


def reactor_of(pid):
    threads = os.listdir(f"/proc/{pid}/task")
    return next(thread for thread in threads if open(f"/proc/{pid}/task/{thread}/comm").read().startswith("reactor"))


def traced(uri, pid):
    """Medians, in microseconds, of the two stretches of a hit outside of the kernel: from the return with the request to the call that starts
    the read, and from the return with the data to the call that sends them. `None` where the kernel cannot be traced."""
    if os.geteuid() != 0 or os.uname().machine != "x86_64":
        return None
    if not os.path.isdir(f"{TRACEFS}/instances"):
        subprocess.run(["mount", "-t", "tracefs", "none", TRACEFS], capture_output=True)
    place = f"{TRACEFS}/instances/hearth-bench"
    try:
        os.mkdir(place)
    except OSError:
        return None
    undo.append(lambda: os.path.isdir(place) and os.rmdir(place))
    tell = lambda what, file: open(f"{place}/{file}", "w").write(what)
    for event in ("sys_enter", "sys_exit"):
        tell(f"common_pid == {reactor_of(pid)}", f"events/raw_syscalls/{event}/filter")
        tell("1", f"events/raw_syscalls/{event}/enable")
    tell("8192", "buffer_size_kb")
    tell("mono", "trace_clock")
    load = subprocess.Popen(["fio", "--name=t", "--ioengine=nbd", f"--uri={uri}", "--rw=randread", "--bs=4k", "--iodepth=1", "--time_based",
                             "--runtime=3", f"--size={SIZE_MIB}m", "--norandommap"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1)
    tell("1", "tracing_on")
    time.sleep(0.3)
    tell("0", "tracing_on")
    load.wait()
    text = open(f"{place}/trace").read()
    tell("0", "events/enable")
    before, after, returned = [], [], None
    for at, event, number, second in EVENT.findall(text):
        at, number = float(at) * 1e6, int(number)
        if event == "sys_exit":
            returned = at if number == ENTER else None
        elif returned is not None and number == SENDMSG:
            after.append(at - returned)
        # The next receive and the read from the SSD start together: two entries.
        elif returned is not None and number == ENTER and int(second, 16) >= 2:
            before.append(at - returned)
    if len(after) < 100 or len(before) < 100:
        return None
    return {"request_to_read_us": round(statistics.median(before), 1), "data_to_reply_us": round(statistics.median(after), 1)}


def measure():
    plain = random_file("plain.img", SIZE_MIB)
    ssd_uri, ssd = cached_volume("ssd", plain, "4MiB")
    ram_uri, ram = cached_volume("ram", plain, f"{2 * SIZE_MIB}MiB")
    fio(ram_uri, 32, 1)
    memory_uri, memory_pid = peer("memory", "nbdkit", "-f", "-U", "{socket}", "memory", f"{SIZE_MIB}M")
    run("nbdcopy", plain, memory_uri)
    qemu = peer("qemu", "qemu-nbd", "--cache=none", "--aio=io_uring", "-f", "raw", "-t", "-e", "16", "-k", "{socket}", plain)
    servers = {"raw": (plain, None), "ssd": (ssd_uri, ssd.pid), "ram": (ram_uri, ram.pid), "memory": (memory_uri, memory_pid), "qemu": qemu}
    medians, found = in_turns(servers, lambda server: fio(server[0], 1, 1, server[1]))
    added = statistics.median(ours["p50_us"] - raw["p50_us"] for ours, raw in zip(found["ssd"], found["raw"]))
    added_qemu = statistics.median(theirs["p50_us"] - raw["p50_us"] for theirs, raw in zip(found["qemu"], found["raw"]))
    trip = medians["memory"]["p50_us"]
    rows = [{"what": "raw io_uring read of the SSD file", "p50_us": medians["raw"]["p50_us"]},
            {"what": "nbdkit memory, round trip", "p50_us": trip},
            {"what": "hearth, SSD hit over NBD", "p50_us": medians["ssd"]["p50_us"]},
            {"what": "hearth, SSD hit minus raw read (at most 1.1 x nbdkit memory)", "p50_us": added, "ratio": added / trip, "at_most": 1.1},
            {"what": "qemu-nbd minus raw read", "p50_us": added_qemu, "ratio": added_qemu / trip},
            {"what": "hearth, RAM hit over NBD (at most nbdkit memory)", "p50_us": medians["ram"]["p50_us"],
             "ratio": medians["ram"]["p50_us"] / trip, "at_most": 1.0}]
    stretches = traced(ssd_uri, ssd.pid)
    if stretches:
        own = sum(stretches.values())
        rows.append({"what": "engine and reactor in an SSD hit, traced (at most 10 us)", "p50_us": own, "ratio": own / 10, "at_most": 1.0, **stretches})
    else:
        print("(the kernel's trace of system calls is not to be had here: engine and reactor are not told apart)")
    print(f"{'latency at queue depth 1, medians':<64} {'us':>8} {'ratio':>6} {'at most':>8}")
    for row in rows:
        ratio, most = row.get("ratio"), row.get("at_most")
        print(f"{row['what']:<64} {row['p50_us']:>8.1f} {f'{ratio:.2f}' if ratio else '':>6} {most or '':>8}")
    return rows
