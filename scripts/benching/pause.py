"""How long who reads a block device waits while the daemon is killed or restarted, with ten million cached blocks."""

import mmap, os, random, signal, socket, statistics, subprocess, tempfile, threading, time
from rig import HEARTH, Daemon, children, end
from start import BLOCKS, filled

TIMES = int(os.environ.get("BENCH_PAUSES", "20"))
# What the unit waits before it starts a daemon that was killed.
RESTART_SECONDS = 0.1


class Manager:
    """As much of a service manager as keeps descriptors, and starts a daemon with them."""

    def __init__(self, daemon):
        self.daemon, self.kept = daemon, {}
        self.place = tempfile.mkdtemp()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"{self.place}/notify")
        self.socket.setblocking(False)
        daemon.env.update(NOTIFY_SOCKET=f"{self.place}/notify", FDSTORE="512")

    def listen(self):
        while True:
            try:
                text, descriptors, _, _ = socket.recv_fds(self.socket, 4096, 4)
            except BlockingIOError:
                return
            words = dict(line.split("=", 1) for line in text.decode().splitlines() if "=" in line)
            name = words.get("FDNAME")
            if "FDSTOREREMOVE" in words and name in self.kept:
                os.close(self.kept.pop(name))
            elif "FDSTORE" in words:
                # Beyond the numbers under which the next daemon gets them.
                high = 200 + len(self.kept) + random.randrange(10_000)
                self.kept[name] = os.dup2(descriptors[0], high, inheritable=False)
                os.close(descriptors[0])

    def start(self):
        """Starts the daemon; does not wait for it."""
        self.listen()
        names, numbers = list(self.kept), list(self.kept.values())
        moved = " ".join(f"{3 + at}<&{number} {number}<&-" for at, number in enumerate(numbers))
        env = dict(self.daemon.env, LISTEN_FDS=str(len(names)), LISTEN_FDNAMES=":".join(names))
        self.daemon.process = subprocess.Popen(["bash", "-c", f"exec {moved}; LISTEN_PID=$$ exec {HEARTH} serve"], env=env, pass_fds=numbers,
                                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        children.append(self.daemon.process)

    def close(self):
        for number in self.kept.values():
            os.close(number)
        self.kept.clear()
        self.socket.close()
        os.remove(f"{self.place}/notify")
        os.rmdir(self.place)


class Client:
    """Reads cached blocks one after the other, past the page cache; notes how long each took."""

    def __init__(self, device):
        self.file = os.open(device, os.O_RDONLY | os.O_DIRECT)
        self.page = mmap.mmap(-1, 4096)
        self.longest, self.count, self.going, self.error = 0.0, 0, True, None
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self):
        try:
            while self.going:
                begun = time.monotonic()
                os.preadv(self.file, [self.page], random.randrange(BLOCKS) * 4096)
                self.longest = max(self.longest, time.monotonic() - begun)
                self.count += 1
        except OSError as error:
            self.error = error

    def close(self):
        self.going = False
        self.thread.join()
        os.close(self.file)
        if self.error:
            raise SystemExit(f"bench: the client met an error: {self.error}")


def pause(client, what):
    """The longest request around something that happens to the daemon, in seconds."""
    time.sleep(0.5)
    client.longest, before = 0.0, client.count
    what()
    while client.count < before + 200:
        if client.error:
            client.close()
        time.sleep(0.01)
    time.sleep(0.2)
    return client.longest


def measure():
    if os.geteuid() != 0:
        print("(a block device needs root: not measured)")
        return []
    daemon = Daemon("pause")
    made = filled(daemon, "loop")
    if not made:
        print("(pause: less than 4 GiB free: not measured)")
        return []
    device, fill = made
    manager = Manager(daemon)
    manager.start()
    daemon.process.stdout.readline()
    manager.listen()
    client = Client(device)

    def killed():
        end(daemon.process, signal.SIGKILL)
        time.sleep(RESTART_SECONDS)
        manager.start()

    def restarted():
        end(daemon.process)
        manager.start()

    rows = []
    for what, happens, at_most in (("SIGKILL", killed, 2.5), ("restart", restarted, 1.0)):
        pauses = sorted(pause(client, happens) for _ in range(TIMES))
        rows.append({"what": what, "times": TIMES, "cached_blocks": fill["blocks"], "median_s": round(statistics.median(pauses), 3),
                     "longest_s": round(pauses[-1], 3), "at_most": at_most})
    client.close()
    end(daemon.process)
    manager.listen()
    manager.close()
    title = f"block device, {fill['blocks']:,} cached blocks: pause"
    print(f"{title:<56} {'times':>6} {'median, s':>10} {'longest, s':>11} {'at most':>8}")
    for row in rows:
        print(f"{row['what']:<56} {row['times']:>6} {row['median_s']:>10.3f} {row['longest_s']:>11.3f} {row['at_most']:>8}")
    return rows
