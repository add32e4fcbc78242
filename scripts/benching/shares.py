"""Volumes for other machines: the kernel's targets on hearth's ublk device beside the same targets on bcache, at hits, in a guest. The same
kernel, initiators over loopback, one emulated processor whose time is counted in instructions.

Times are those of the guest's clock, which counts instructions: good for ratios, and for nothing else."""

import json, os, subprocess
from rig import HEARTH, ROOT, ROUNDS
from ublk import LAB

# With the instructions for checksums: here instructions count, and not how long their emulation takes.
CPU = "max,-erms,-fsrm,-la57"


def measure():
    if not os.path.exists(LAB):
        print("(the guest lab is not beside the project: not measured)")
        return []
    modules = ("ublk_drv", "loop", "fuse", "bcache", "brd,rd_nr=4,rd_size=196608", "target_core_mod", "target_core_iblock", "iscsi_target_mod",
               "iscsi_tcp", "sd_mod", "nvmet-tcp", "nvme-tcp")
    words = [word for module in modules for word in ("--module", module)]
    inside = os.path.join(ROOT, "scripts/benching/shares_in_guest.py")
    done = subprocess.run([LAB, "run", "--icount", "1", "--cpus", "1", "--cpu", CPU, "--mem", "3G", "--timeout", "1500", *words,
                           "--", "python3", inside, HEARTH, str(ROUNDS)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"bench: the guest ended with {done.returncode}: {done.stderr[-2000:]}")
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    print(f"{'in a guest, ' + rows[0]['kernel']:<28} {'QD':>3} {'hearth IOPS':>12} {'bcache IOPS':>12} {'hearth to bcache':>17}")
    for row in rows:
        print(f"{row['by'] + ', randread 4k at hits':<28} {row['depth']:>3} {row['iops']:>12} {row['bcache_iops']:>12} {row['iops_to_bcache']:>16.2f}x")
    return rows
