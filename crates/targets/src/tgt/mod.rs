//! iSCSI by `tgtd`, a server in user space, where the kernel has no LIO.
//!
//! It has one list of addresses and one list of CHAP users for all targets, and forgets everything
//! when it ends. What it cannot do is told ([`LIMITS`]); what would be a lie is refused. Names, serial
//! number and world-wide name are the same as LIO's: `scsi_id` is written as digits of the latter.
//!
//! Requests go to the device by system calls (`rdwr`): its `aio` answers a flush without one. With the page cache, unless others write to
//! the device too; see [`mend`].

mod mend;
mod shown;
mod wire;

pub use wire::Tgtd;

use crate::error::TargetError;
use crate::{Access, Protocol, Share, names};
use shown::Shown;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use wire::{Act, Mode, Order, Refusal};

/// The disk's number; 0 is a controller that every target of its has.
const UNIT: u64 = 1;
/// How long a removal waits for requests under way.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(50);
/// What is to be told of a target with CHAP users that the share does not have.
const OTHER_USERS: &str = "its target has other CHAP users than the file: that is put right when no initiator is logged in";

/// What is to be told of a target that was opened before others wrote to its device, or when they did.
const OTHERS_WRITE: &str = "its initiators may not see at once what is written to the volume by other ways: that is put right when none is \
logged in";

/// What initiators do without, sentences for people.
pub const LIMITS: [&str; 4] = [
    "tgt serves it, since the kernel has no iSCSI target (LIO); the disk has LUN 1",
    "compare-and-write (ATS) gives errors, so do not use it for VMFS; reservations end when tgt or the share ends",
    "tgt offers all its targets at all its addresses",
    "after growth: log out, then remove the share and add it again",
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

/// What a look shows of a share.
#[derive(Debug)]
pub(crate) enum Seen {
    /// It has no such target.
    Nothing,
    /// What it lacks, and who is logged in.
    Target { lacks: Vec<String>, connected: Vec<String> },
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
            Err(Refusal::Absent(_)) => Ok(false),
            Err(refusal) => Err(self.failed("look at its targets", &refusal)),
        }
    }

    /// Its unit closes it while targets of others are set up, and before it ends: with a target that
    /// came meanwhile it would not end.
    fn check_open(&self) -> Result<(), TargetError> {
        let text = self.order("tell its state", Order::new(Mode::System, Act::Show))?;
        if text.lines().find_map(|line| line.strip_prefix("    State: ")).is_none_or(|state| state == "ready") {
            return Ok(());
        }
        let problem = "tgt is just being started or stopped: it accepts no logins".into();
        let remedy = "wait for it; if it stays so, open it with `tgtadm --mode sys --op update --name State -v ready`";
        Err(TargetError::Tgt { problem, remedy: remedy.into() })
    }

    /// Gives what could not be put right, a sentence.
    pub(crate) fn apply(&self, share: &Share) -> Result<Option<String>, TargetError> {
        let wanted = mend::accounts(share.chap.as_ref());
        if wanted.iter().any(|(user, ..)| user.contains(',')) {
            let problem = "tgt takes no CHAP user with a comma in its name".into();
            return Err(TargetError::Tgt { problem, remedy: "give it another name in the file".into() });
        }
        self.check_open()?;
        let name = share.target();
        let known = self.targets()?;
        let mut made = Made::default();
        if let Some(there) = known.iter().find(|target| target.name == name) {
            let is_wanted = |(name, is_outgoing): &(String, bool)| wanted.iter().any(|(user, _, out)| user == name && out == is_outgoing);
            let has_others = !there.accounts.iter().all(is_wanted);
            // It falls over its own list when one of several users is taken from a target.
            if !has_others || !there.initiators.is_empty() {
                self.mend(there, share, &known, &mut made)?;
                let is_stale = !share.is_alone && !there.initiators.is_empty() && there.unit(UNIT).is_some_and(|unit| !unit.is_direct);
                let told: Vec<&str> = has_others.then_some(OTHER_USERS).into_iter().chain(is_stale.then_some(OTHERS_WRITE)).collect();
                return Ok(Some(told.join("; ")).filter(|told| !told.is_empty()));
            }
            self.remove(share.uuid, Refused::Unknown)?;
        }
        let done = self.make(share, &known, &mut made);
        if done.is_err() {
            self.undo(&made);
        }
        done.map(|()| None)
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

    /// Notes what it made.
    fn make(&self, share: &Share, known: &[Shown], made: &mut Made) -> Result<(), TargetError> {
        let mut number = first_number(share.uuid);
        let make = |number: i32| Order::new(Mode::Target, Act::New).target(number).words(format!("targetname={}", share.target()));
        while let Err(refusal) = self.ask(&make(number)) {
            // Nor may one of that name have come meanwhile.
            let next = number.checked_add(1).filter(|_| refusal.is(Refusal::TARGET_EXISTS) && known.iter().any(|t| t.number == number));
            number = next.ok_or_else(|| self.failed("make a target", &refusal))?;
        }
        made.target = Some(number);
        // New, it is open, and allows nobody.
        self.mend(&Shown { number, is_ready: true, ..Shown::default() }, share, known, made)
    }

    /// `where_refused`: what it means that it takes no orders of ours.
    pub(crate) fn remove(&self, uuid: [u8; 16], where_refused: Refused) -> Result<(), TargetError> {
        let known = match self.targets_if_there() {
            Err(_) if where_refused == Refused::HasNone && self.refuses() => return Ok(()),
            known => known?.unwrap_or_default(),
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
            if !is_used && !self.server_has_user(user) {
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

    fn delete(&self, number: i32) -> Result<(), TargetError> {
        self.when_idle("remove the target", &Order::new(Mode::Target, Act::Delete).target(number).force())
    }

    /// Waits for requests under way.
    fn when_idle(&self, doing: &'static str, order: &Order) -> Result<(), TargetError> {
        let begun = Instant::now();
        while let Err(refusal) = self.ask(order) {
            if !refusal.is(Refusal::UNIT_ACTIVE) || begun.elapsed() > PATIENCE {
                return Err(self.failed(doing, &refusal));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// What the target of the share lacks, clauses for people, and who is logged in. `None`: it does not
    /// run.
    pub(crate) fn look(&self, share: &Share, has_secrets: bool) -> Result<Option<Seen>, TargetError> {
        let Some(targets) = self.targets_if_there()? else { return Ok(None) };
        self.check_open()?;
        let name = share.target();
        let Some(target) = targets.into_iter().find(|target| target.name == name) else { return Ok(Some(Seen::Nothing)) };
        let mut lacks = mend::lacks(&target, share, has_secrets);
        lacks.extend(self.deaf(&share.addresses)?.iter().map(|address| format!("it does not listen on {address}")));
        Ok(Some(Seen::Target { lacks, connected: logged_in(target) }))
    }

    pub(crate) fn connected(&self, uuid: [u8; 16]) -> Result<Vec<String>, TargetError> {
        Ok(self.target_of(uuid)?.map(logged_in).unwrap_or_default())
    }

    /// The disk keeps its size until its device is opened anew: that is an error to whoever uses it.
    pub(crate) fn refresh(&self, uuid: [u8; 16]) -> Result<bool, TargetError> {
        let is_free = |target: &Shown| target.initiators.is_empty();
        let Some(target) = self.target_of(uuid)?.filter(is_free) else { return Ok(false) };
        let Some(device) = target.unit(UNIT).and_then(|unit| unit.path.as_ref()) else { return Ok(false) };
        // Nobody logs in between the look and the act.
        self.set_ready(target.number, false)?;
        let is_reopened = match self.target_of(uuid) {
            Ok(Some(now)) if is_free(&now) => self.reopen(target.number, device).map(|()| true),
            other => other.map(|_| false),
        };
        self.set_ready(target.number, true).and(is_reopened)
    }

    fn reopen(&self, number: i32, device: &str) -> Result<(), TargetError> {
        let update = |words: String| Order::new(Mode::Unit, Act::Update).target(number).unit(UNIT).words(words);
        self.order("open the device again", update("targetOps online=0,".into()))?;
        self.order("open the device again", update(format!("targetOps path={device},"))).map(drop)
    }

    /// Whether it has a target of that volume.
    pub(crate) fn has(&self, uuid: [u8; 16]) -> Result<bool, TargetError> {
        Ok(self.target_of(uuid)?.is_some())
    }

    fn target_of(&self, uuid: [u8; 16]) -> Result<Option<Shown>, TargetError> {
        let name = names::target(Protocol::Iscsi, uuid);
        Ok(self.targets_if_there()?.into_iter().flatten().find(|target| target.name == name))
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

    /// `None`: it does not run.
    fn targets_if_there(&self) -> Result<Option<Vec<Shown>>, TargetError> {
        match self.ask(&Order::new(Mode::Target, Act::Show)) {
            Ok(text) => self.read(&text).map(Some),
            Err(Refusal::Absent(_)) => Ok(None),
            Err(refusal) => Err(self.failed("look at its targets", &refusal)),
        }
    }

    fn order(&self, doing: &'static str, order: Order) -> Result<String, TargetError> {
        self.ask(&order).map_err(|refusal| self.failed(doing, &refusal))
    }

    fn failed(&self, doing: &str, refusal: &Refusal) -> TargetError {
        let socket = self.socket().display();
        let (problem, remedy) = match refusal {
            Refusal::Absent(error) => (format!("tgt does not listen at {socket} ({error})"), "start it with `systemctl start tgt`"),
            // The same words each time: what is told is told once.
            Refusal::Silent(_) => (
                format!("tgt does not answer at {socket}"),
                "see `systemctl status tgt`; hearth asks it again at once when it was restarted, and otherwise within a minute",
            ),
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

fn logged_in(target: Shown) -> Vec<String> {
    let mut initiators = target.initiators;
    initiators.sort();
    initiators.dedup();
    initiators
}
