"""The ublk export beside rublk's loop target and beside our own loop export, in a guest whose kernel has ublk: the same file, the same
kernel, one emulated processor whose time is counted in instructions. Nothing is cached and no checksum is computed: the exports alone.

Times are those of the guest's clock, which counts instructions: good for ratios, and for nothing else."""

import json, os, subprocess, sys
from rig import ROOT, ROUNDS, TARGET, run

LAB = os.path.join(ROOT, "../shared/vmlab/vmlab")


def measure():
    if not os.path.exists(LAB):
        print("(the guest lab is not beside the project: not measured)")
        return []
    run("cargo", "build", "--release", "--locked", "-q", "-p", "ublk", "-p", "fuse", "--examples", cwd=ROOT, timeout=3600)
    modules = [word for module in ("ublk_drv", "loop", "fuse", "null_blk,nr_devices=1,gb=1", "brd,rd_nr=1,rd_size=262144") for word in ("--module", module)]
    inside = os.path.join(ROOT, "scripts/benching/in_guest.py")
    done = subprocess.run([LAB, "run", "--icount", "1", "--cpus", "1", "--mem", "2G", "--timeout", "1500", *modules,
                           "--", "python3", inside, os.path.join(TARGET, "release/examples"), str(ROUNDS)],
                          capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"bench: the guest ended with {done.returncode}: {done.stderr[-2000:]}")
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    print(f"{'in a guest, ' + rows[0]['kernel']:<24} {'what':>18} {'QD':>3} {'IOPS':>8} {'CPU ns/op':>10} {'MiB/s':>7} {'to rublk':>9} {'to our loop':>12} {'to the file':>12}")
    for row in rows:
        shown = lambda key: f"{row[key]:.2f}x" if row.get(key) else ""
        print(f"{row['server']:<24} {row['what']:>18} {row['depth']:>3} {row['iops']:>8} {row['cpu_ns']:>10} {row['mib_s']:>7} "
              f"{shown('iops_to_rublk'):>9} {shown('cpu_to_loop'):>12} {shown('iops_to_file'):>12}")
    return rows
