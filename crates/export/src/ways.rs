//! The words after `--export`: one table for the command line, the documents and the console.

/// What stands behind the word and a colon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// Nothing: the word is all.
    Nothing,
    /// Nothing, or the absolute path of a Unix socket.
    SocketOrNothing,
    /// IP:PORT of this machine's loopback interface.
    LoopbackAddress,
    /// IP:PORT of any interface.
    Address,
}

impl Takes {
    /// Whether the word may stand alone.
    pub fn is_optional(self) -> bool {
        matches!(self, Takes::Nothing | Takes::SocketOrNothing)
    }
}

/// A way to offer a volume.
#[derive(Debug)]
pub struct Way {
    /// What people type, and what the state says: "loop:fast". Unique with `takes`.
    pub word: &'static str,
    /// What may stand behind it.
    pub takes: Takes,
    /// Whether it is a block device of this machine. A volume has one of those at most.
    pub is_device: bool,
    /// Whether clients show a certificate.
    pub has_tls: bool,
    /// How to write it on the command line: "nbd:IP:PORT with --tls".
    pub usage: &'static str,
    /// Its name for people: "NBD on a Unix socket".
    pub title: &'static str,
    /// What it creates, for the table of the documents.
    pub creates: &'static str,
    /// How its clients learn that the volume has grown; `None`: its block device says so.
    pub growth: Option<&'static str>,
}

const DEVICE: Way =
    Way { word: "", takes: Takes::Nothing, is_device: true, has_tls: false, usage: "", title: "Block device", creates: "", growth: None };

const NBD_GROWTH: &str = "NBD clients see it when they connect again";

/// A block device by the best way that this machine has.
pub static BLOCK: Way = Way {
    word: "block",
    usage: "block",
    creates: "a block device: `ublk` where that works, otherwise `loop`. `volume show` says which, and why. \
              **The right choice unless you have a reason**",
    ..DEVICE
};

/// A `/dev/ublkbN` of the kernel's ublk driver.
pub static UBLK: Way = Way {
    word: "ublk",
    usage: "ublk",
    creates: "a block device `/dev/ublkbN` of the kernel's ublk driver (Linux 6.5 or later, module `ublk_drv`), and the \
              stable name `/dev/hearth/NAME`. It outlives the daemon: users wait while it restarts",
    ..DEVICE
};

/// A `/dev/loopN` over the own FUSE server.
pub static LOOP: Way = Way {
    word: "loop",
    usage: "loop",
    creates: "a block device `/dev/loopN` and, if possible, the stable name `/dev/hearth/NAME` (needs root). It outlives \
              the daemon: users wait while it restarts",
    ..DEVICE
};

/// The same over io_uring where the kernel offers it, which costs less, and ends with the daemon.
pub static LOOP_FAST: Way = Way {
    word: "loop:fast",
    usage: "loop:fast",
    creates: "the same over io_uring, if `/sys/module/fuse/parameters/enable_uring` is `Y` (Linux 6.14 or later): less \
              processor time for each request, and the device ends with the daemon",
    ..DEVICE
};

/// NBD on the Unix socket of the daemon.
pub static NBD: Way = Way {
    word: "nbd",
    takes: Takes::Nothing,
    is_device: false,
    has_tls: false,
    usage: "nbd",
    title: "NBD on a Unix socket",
    creates: "an NBD export on the Unix socket `nbd.sock` beside the control socket",
    growth: Some(NBD_GROWTH),
};

/// A virtio disk for virtual machines over vhost-user, on a Unix socket.
pub static VHOST_USER: Way = Way {
    word: "vhost-user",
    takes: Takes::SocketOrNothing,
    is_device: false,
    has_tls: false,
    usage: "vhost-user or vhost-user:SOCKET",
    title: "Disk for virtual machines",
    creates: "a virtio disk for virtual machines on this host ([virtual-machines.md](virtual-machines.md)), on the socket \
              `vhost-user/NAME.sock` beside the control socket, or on SOCKET",
    growth: Some("virtual machines have it"),
};

/// NBD on TCP without encryption: loopback addresses only.
pub static NBD_TCP: Way = Way {
    word: "nbd",
    takes: Takes::LoopbackAddress,
    is_device: false,
    has_tls: false,
    usage: "nbd:127.0.0.1:PORT",
    title: "NBD on TCP",
    creates: "an NBD export on TCP; loopback addresses only, since it has no encryption",
    growth: Some(NBD_GROWTH),
};

/// NBD on TCP with TLS.
pub static NBD_TLS: Way = Way {
    word: "nbds",
    takes: Takes::Address,
    is_device: false,
    has_tls: true,
    usage: "nbd:IP:PORT with --tls",
    title: "NBD on TCP with TLS",
    creates: "an NBD export on TCP with TLS, for other machines too: clients need a certificate ([tls.md](tls.md)). \
              `volume show` and the API call it `nbds:IP:PORT`",
    growth: Some(NBD_GROWTH),
};

/// All of them, in the order in which people are shown them. The first is what is offered where nothing is said.
pub static ALL: [&Way; 8] = [&BLOCK, &UBLK, &LOOP, &LOOP_FAST, &NBD, &VHOST_USER, &NBD_TCP, &NBD_TLS];

/// The words that are complete without a place, or can be.
pub fn words() -> Vec<&'static str> {
    ALL.iter().filter(|way| way.takes.is_optional()).map(|way| way.word).collect()
}

/// What to write after `--export`, with commas between.
pub fn usage() -> String {
    let (last, others) = ALL.split_last().expect("there are ways");
    let others: Vec<&str> = others.iter().map(|way| way.usage).collect();
    format!("{} or {}", others.join(", "), last.usage)
}

impl PartialEq for Way {
    fn eq(&self, other: &Way) -> bool {
        (self.word, self.takes) == (other.word, other.takes)
    }
}

impl Eq for Way {}
