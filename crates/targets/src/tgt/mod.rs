//! iSCSI by `tgtd`, a server in user space, where the kernel has no LIO.
//!
//! It has one list of addresses and one list of CHAP users for all targets, and forgets everything
//! when it ends. What it cannot do is told ([`LIMITS`]); what would be a lie is refused. Names, serial
//! number and world-wide name are the same as LIO's: `scsi_id` is written as digits of the latter.
//!
//! Requests go to the device directly (`rdwr` with `O_DIRECT`): its `aio` answers a flush without one.

mod shown;
mod wire;

pub use wire::Tgtd;

use crate::error::TargetError;
use crate::{Access, Chap, Protocol, Share, names};
use shown::Shown;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use wire::{Act, Mode, Order, Refusal};

/// The disk's number; 0 is a controller that every target of its has.
const UNIT: u64 = 1;
/// How long a removal waits for requests under way.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(50);

/// What initiators do without, sentences for people.
pub const LIMITS: [&str; 4] = [
    "tgt serves it, since the kernel has no iSCSI target (LIO); the disk has LUN 1",
    "compare-and-write (ATS) gives errors, so do not use it for VMFS; reservations end when tgt or the share ends",
    "tgt offers all its targets at all its addresses",
    "after growth: log out, and share it anew",
];

/// Those that may connect, in its words.
fn allowed(share: &Share) -> Vec<(&'static str, String)> {
    match &share.access {
        Access::Only(names) => names.iter().map(|name| ("initiator-name", name.clone())).collect(),
        // Its addresses are not ours alone: other machines may reach it there.
        Access::Anyone if share.addresses.iter().all(|address| address.ip().is_loopback()) => {
            ["127.0.0.0/8", "::1"].map(|address| ("initiator-address", address.into())).to_vec()
        }
        Access::Anyone => vec![("initiator-address", "ALL".into())],
    }
}

/// What it means that a server takes no orders of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// None of our targets can be there.
    HasNone,
    /// That cannot be told.
    Unknown,
}

/// What was made for a share, to be undone.
#[derive(Default)]
struct Made {
    target: Option<i32>,
    users: Vec<String>,
    portals: Vec<SocketAddr>,
}

fn forget(user: &str) -> Order {
    Order::new(Mode::Account, Act::Delete).words(format!("user={user}"))
}

fn portal(act: Act, address: SocketAddr) -> Order {
    Order::new(Mode::Portal, act).words(format!("portal={address}"))
}

/// Far from the small numbers that `tgt-admin` and people give, of the volume alone.
fn first_number(uuid: [u8; 16]) -> i32 {
    let [a, b, c, d, ..] = uuid;
    i32::from_be_bytes([0x40 | (a & 0x1f), b, c, d])
}

impl Tgtd {
    /// Whether it is there and takes orders.
    ///
    /// # Errors
    /// If it is there and does not obey.
    pub fn answers(&self) -> Result<bool, TargetError> {
        match self.ask(&Order::new(Mode::Target, Act::Show)) {
            Ok(_) => Ok(true),
            Err(Refusal::Connection(_)) => Ok(false),
            Err(refusal) => Err(self.failed("look at its targets", &refusal)),
        }
    }

    pub(crate) fn apply(&self, share: &Share) -> Result<(), TargetError> {
        if share.chap.as_ref().is_some_and(|chap| chap.user().contains(',') || chap.mutual().is_some_and(|(user, _)| user.contains(','))) {
            let problem = "tgt takes no CHAP user with a comma in its name".into();
            return Err(TargetError::Tgt { problem, remedy: "give it another name in the file".into() });
        }
        let name = share.target();
        let known = self.targets()?;
        if let Some(there) = known.iter().find(|target| target.name == name) {
            if is_as_wanted(there, share) && has_accounts(there, share) {
                return self.listen(&share.addresses, &mut Made::default());
            }
            self.remove(share.uuid, Refused::Unknown)?;
        }
        let mut made = Made::default();
        let done = self.make(share, &known, &mut made);
        if done.is_err() {
            self.undo(&made);
        }
        done
    }

    /// The target goes first: without its users it would be open to all.
    fn undo(&self, made: &Made) {
        if let Some(number) = made.target {
            let gone = self.set_ready(number, false).and_then(|()| self.disconnect(number)).and_then(|()| self.delete(number));
            if gone.is_err() {
                return;
            }
        }
        made.users.iter().map(|user| forget(user)).chain(made.portals.iter().map(|address| portal(Act::Delete, *address))).for_each(
            |order| {
                drop(self.ask(&order));
            },
        );
    }

    /// Notes what it made. Who may connect comes last.
    fn make(&self, share: &Share, known: &[Shown], made: &mut Made) -> Result<(), TargetError> {
        self.listen(&share.addresses, made)?;
        let mut number = first_number(share.uuid);
        let make = |number: i32| Order::new(Mode::Target, Act::New).target(number).words(format!("targetname={}", share.target()));
        while let Err(refusal) = self.ask(&make(number)) {
            // Nor may one of that name have come meanwhile.
            let next = number.checked_add(1).filter(|_| refusal.is(Refusal::TARGET_EXISTS) && known.iter().any(|t| t.number == number));
            number = next.ok_or_else(|| self.failed("make a target", &refusal))?;
        }
        made.target = Some(number);
        let sector_bytes = sector_bytes(&share.device);
        let unit = Order::new(Mode::Unit, Act::New).target(number).unit(UNIT);
        self.order("take the device", unit.words(format!("path={},bstype=rdwr,bsoflags=direct,blocksize={sector_bytes}", share.device)))?;
        let facts = format!(
            "targetOps scsi_id={},scsi_sn={},vendor_id=HEARTH,product_id=volume,thin_provisioning=1,readonly={},",
            names::naa(share.uuid),
            names::scsi_serial(share.uuid),
            u8::from(share.read_only)
        );
        self.order("name the disk", Order::new(Mode::Unit, Act::Update).target(number).unit(UNIT).words(facts))?;
        if let Some(chap) = &share.chap {
            self.secrets(number, chap, known, made)?;
        }
        for (kind, who) in allowed(share) {
            self.order("allow an initiator", Order::new(Mode::Target, Act::Bind).target(number).words(format!("{kind}={who}")))?;
        }
        Ok(())
    }

    fn secrets(&self, number: i32, chap: &Chap, known: &[Shown], made: &mut Made) -> Result<(), TargetError> {
        let mutual = chap.mutual().map(|(user, password)| (user, password, true));
        for (user, password, is_outgoing) in [(chap.user(), chap.password(), false)].into_iter().chain(mutual) {
            let order = Order::new(Mode::Account, Act::New).words(format!("user={user},password={password}"));
            let mut answer = self.ask(&order);
            // One that nobody has is left of a share that was not made to its end.
            let is_left = |refusal: &Refusal| refusal.is(Refusal::USER_EXISTS) && !self.has_user(known, made, user);
            if answer.as_ref().is_err_and(is_left) {
                drop(self.ask(&forget(user)));
                answer = self.ask(&order);
            }
            answer.map_err(|refusal| match refusal.is(Refusal::USER_EXISTS) {
                true => TargetError::Tgt {
                    problem: format!("tgt has one list of CHAP users, and \"{user}\" is in it already"),
                    remedy: "give another name in the file, for each share its own".into(),
                },
                false => self.failed("take a CHAP user", &refusal),
            })?;
            made.users.push(user.to_owned());
            let bind = Order::new(Mode::Account, Act::Bind).target(number).words(format!("user={user}"));
            self.order("take a CHAP user", if is_outgoing { bind.outgoing() } else { bind })?;
        }
        Ok(())
    }

    /// Whether a target has that CHAP user, this share has, or the server for discovery.
    fn has_user(&self, known: &[Shown], made: &Made, user: &str) -> bool {
        let of_server = self.ask(&Order::new(Mode::System, Act::Show));
        let is_listed = |text: &String| text.lines().any(|line| line.trim().trim_end_matches(" (outgoing)") == user);
        made.users.iter().any(|own| own == user)
            || known.iter().any(|target| target.accounts.iter().any(|(name, _)| name == user))
            || of_server.as_ref().map_or(true, is_listed)
    }

    /// Has it listen there, too.
    fn listen(&self, addresses: &[SocketAddr], made: &mut Made) -> Result<(), TargetError> {
        let portals = shown::portals(&self.order("tell its addresses", Order::new(Mode::Portal, Act::Show))?);
        for address in addresses.iter().filter(|address| !shown::covers(&portals, **address)) {
            self.ask(&portal(Act::New, *address)).map_err(|_| TargetError::Tgt {
                problem: format!("tgt cannot listen on {address}"),
                remedy: "give an address of this machine, and a port that no other program has".into(),
            })?;
            made.portals.push(*address);
        }
        Ok(())
    }

    /// `where_refused`: what it means that it takes no orders of ours.
    pub(crate) fn remove(&self, uuid: [u8; 16], where_refused: Refused) -> Result<(), TargetError> {
        let known = match self.targets_if_there() {
            Err(_) if where_refused == Refused::HasNone && self.refuses() => return Ok(()),
            known => known?,
        };
        let name = names::target(Protocol::Iscsi, uuid);
        let Some(target) = known.iter().find(|target| target.name == name) else { return Ok(()) };
        // Nothing new begins; what is under way ends.
        self.set_ready(target.number, false)?;
        if let Err(error) = self.disconnect(target.number).and_then(|()| self.delete(target.number)) {
            // What stays is to work.
            drop(self.set_ready(target.number, true));
            return Err(error);
        }
        for (user, _) in &target.accounts {
            let is_used = known.iter().any(|other| other.number != target.number && other.accounts.iter().any(|(name, _)| name == user));
            if !is_used {
                self.order("forget a CHAP user", forget(user))?;
            }
        }
        Ok(())
    }

    /// Whether it is there and takes no orders of ours.
    fn refuses(&self) -> bool {
        matches!(self.ask(&Order::new(Mode::Target, Act::Show)), Err(Refusal::NotAllowed))
    }

    fn set_ready(&self, number: i32, is_ready: bool) -> Result<(), TargetError> {
        let (doing, state) = if is_ready { ("open the target", "state=ready") } else { ("close the target", "state=offline") };
        self.order(doing, Order::new(Mode::Target, Act::Update).target(number).words(state.into())).map(drop)
    }

    fn disconnect(&self, number: i32) -> Result<(), TargetError> {
        let about = |act: Act| Order::new(Mode::Connection, act).target(number);
        let sessions = self.order("tell its connections", about(Act::Show))?;
        for (session, connection) in shown::connections(&sessions) {
            match self.ask(&about(Act::Delete).connection(session, connection)) {
                Err(refusal) if !refusal.is(Refusal::NO_CONNECTION) => return Err(self.failed("disconnect an initiator", &refusal)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Waits for requests under way.
    fn delete(&self, number: i32) -> Result<(), TargetError> {
        let begun = Instant::now();
        while let Err(refusal) = self.ask(&Order::new(Mode::Target, Act::Delete).target(number).force()) {
            if !refusal.is(Refusal::UNIT_ACTIVE) || begun.elapsed() > PATIENCE {
                return Err(self.failed("remove the target", &refusal));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    pub(crate) fn device_of(&self, uuid: [u8; 16]) -> Option<String> {
        Some(self.target_of(uuid)?.devices.into_iter().next().unwrap_or_default())
    }

    pub(crate) fn connected(&self, uuid: [u8; 16]) -> Option<Vec<String>> {
        let mut initiators = self.target_of(uuid).map(|target| target.initiators).unwrap_or_default();
        initiators.sort();
        initiators.dedup();
        Some(initiators)
    }

    /// Whether all of it is as it is to be.
    pub(crate) fn stands(&self, share: &Share) -> bool {
        self.target_of(share.uuid).is_some_and(|target| is_as_wanted(&target, share))
    }

    /// The disk keeps its size until its device is opened anew: that is an error to whoever uses it.
    pub(crate) fn refresh(&self, uuid: [u8; 16]) -> Result<bool, TargetError> {
        let is_free = |target: &Shown| target.initiators.is_empty();
        let Some(target) = self.target_of(uuid).filter(is_free) else { return Ok(false) };
        let Some(device) = target.devices.first() else { return Ok(false) };
        // Nobody logs in between the look and the act.
        self.set_ready(target.number, false)?;
        let is_reopened = match self.target_of(uuid) {
            Some(now) if is_free(&now) => self.reopen(target.number, device).map(|()| true),
            _ => Ok(false),
        };
        self.set_ready(target.number, true).and(is_reopened)
    }

    fn reopen(&self, number: i32, device: &str) -> Result<(), TargetError> {
        let update = |words: String| Order::new(Mode::Unit, Act::Update).target(number).unit(UNIT).words(words);
        self.order("open the device anew", update("targetOps online=0,".into()))?;
        self.order("open the device anew", update(format!("targetOps path={device},"))).map(drop)
    }

    /// Whether it has a target of that volume.
    pub(crate) fn has(&self, uuid: [u8; 16]) -> Result<bool, TargetError> {
        let name = names::target(Protocol::Iscsi, uuid);
        Ok(self.targets_if_there()?.iter().any(|target| target.name == name))
    }

    fn target_of(&self, uuid: [u8; 16]) -> Option<Shown> {
        let name = names::target(Protocol::Iscsi, uuid);
        self.targets_if_there().ok()?.into_iter().find(|target| target.name == name)
    }

    fn targets(&self) -> Result<Vec<Shown>, TargetError> {
        self.read(&self.order("look at its targets", Order::new(Mode::Target, Act::Show))?)
    }

    fn read(&self, text: &str) -> Result<Vec<Shown>, TargetError> {
        shown::targets(text).ok_or_else(|| TargetError::Tgt {
            problem: "the list of tgt's targets is not well-formed: an initiator may have written into it by its name or alias".into(),
            remedy: "see `tgtadm --lld iscsi --mode target --op show`, and disconnect that initiator".into(),
        })
    }

    /// None where it does not run.
    fn targets_if_there(&self) -> Result<Vec<Shown>, TargetError> {
        match self.ask(&Order::new(Mode::Target, Act::Show)) {
            Ok(text) => self.read(&text),
            Err(Refusal::Connection(error)) if error.kind() != std::io::ErrorKind::WouldBlock => Ok(Vec::new()),
            Err(refusal) => Err(self.failed("look at its targets", &refusal)),
        }
    }

    fn order(&self, doing: &'static str, order: Order) -> Result<String, TargetError> {
        self.ask(&order).map_err(|refusal| self.failed(doing, &refusal))
    }

    fn failed(&self, doing: &str, refusal: &Refusal) -> TargetError {
        let socket = self.socket().display();
        let (problem, remedy) = match refusal {
            Refusal::Connection(error) => (format!("tgt does not answer at {socket} ({error})"), "see `systemctl status tgt`"),
            Refusal::NotAllowed => {
                ("tgt takes orders of its own user and group only".into(), "set Group=root in a drop-in of hearth's unit (docs/shares.md)")
            }
            Refusal::Code(code) => {
                (format!("tgt does not {doing} (its error {code})"), "see its messages in the system's log, then try again")
            }
        };
        TargetError::Tgt { problem, remedy: remedy.into() }
    }
}

fn is_as_wanted(target: &Shown, share: &Share) -> bool {
    let sorted = |mut all: Vec<String>| {
        all.sort();
        all
    };
    target.is_ready
        && !target.has_offline
        && target.devices == [share.device.as_str()]
        && sorted(target.allowed.clone()) == sorted(allowed(share).into_iter().map(|(_, who)| who).collect())
}

fn has_accounts(target: &Shown, share: &Share) -> bool {
    let mutual = share.chap.as_ref().and_then(Chap::mutual).map(|(user, _)| (user.to_owned(), true));
    let wanted: Vec<(String, bool)> = share.chap.iter().map(|chap| (chap.user().to_owned(), false)).chain(mutual).collect();
    target.accounts == wanted
}

fn sector_bytes(device: &str) -> u32 {
    let name = Path::new(device).file_name().unwrap_or_default();
    let path = Path::new("/sys/class/block").join(name).join("queue/logical_block_size");
    std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(512)
}
