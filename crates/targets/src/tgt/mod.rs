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
                return self.listen(&share.addresses, &mut Vec::new());
            }
            self.remove(share.uuid)?;
        }
        let mut undo = Vec::new();
        let done = self.make(share, &known, &mut undo);
        if done.is_err() {
            undo.iter().rev().for_each(|order| drop(self.ask(order)));
        }
        done
    }

    /// Gives what takes it back, in the order of the steps. Who may connect comes last.
    fn make(&self, share: &Share, known: &[Shown], undo: &mut Vec<Order>) -> Result<(), TargetError> {
        self.listen(&share.addresses, undo)?;
        let mut number = known.iter().map(|target| target.number).max().unwrap_or(0) + 1;
        let make = |number: i32| Order::new(Mode::Target, Act::New).target(number).words(format!("targetname={}", share.target()));
        // Another program may take the number meanwhile.
        while let Err(refusal) = self.ask(&make(number)) {
            if !refusal.is(Refusal::TARGET_EXISTS) || number > known.len() as i32 + 1000 {
                return Err(self.failed("make a target", &refusal));
            }
            number += 1;
        }
        undo.push(Order::new(Mode::Target, Act::Delete).target(number).force());
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
            self.secrets(number, chap, undo)?;
        }
        for (kind, who) in allowed(share) {
            self.order("allow an initiator", Order::new(Mode::Target, Act::Bind).target(number).words(format!("{kind}={who}")))?;
        }
        Ok(())
    }

    fn secrets(&self, number: i32, chap: &Chap, undo: &mut Vec<Order>) -> Result<(), TargetError> {
        let mutual = chap.mutual().map(|(user, password)| (user, password, true));
        for (user, password, is_outgoing) in [(chap.user(), chap.password(), false)].into_iter().chain(mutual) {
            let made = self.ask(&Order::new(Mode::Account, Act::New).words(format!("user={user},password={password}")));
            made.map_err(|refusal| match refusal.is(Refusal::USER_EXISTS) {
                true => TargetError::Tgt {
                    problem: format!("tgt has one list of CHAP users, and \"{user}\" is in it already"),
                    remedy: "give another name in the file, for each share its own".into(),
                },
                false => self.failed("take a CHAP user", &refusal),
            })?;
            undo.push(Order::new(Mode::Account, Act::Delete).words(format!("user={user}")));
            let bind = Order::new(Mode::Account, Act::Bind).target(number).words(format!("user={user}"));
            self.order("take a CHAP user", if is_outgoing { bind.outgoing() } else { bind })?;
        }
        Ok(())
    }

    /// Has it listen there, too.
    fn listen(&self, addresses: &[SocketAddr], undo: &mut Vec<Order>) -> Result<(), TargetError> {
        let portals = shown::portals(&self.order("tell its addresses", Order::new(Mode::Portal, Act::Show))?);
        for address in addresses.iter().filter(|address| !shown::covers(&portals, **address)) {
            let portal = |act: Act| Order::new(Mode::Portal, act).words(format!("portal={address}"));
            self.ask(&portal(Act::New)).map_err(|_| TargetError::Tgt {
                problem: format!("tgt cannot listen on {address}"),
                remedy: "give an address of this machine, and a port that no other program has".into(),
            })?;
            undo.push(portal(Act::Delete));
        }
        Ok(())
    }

    pub(crate) fn remove(&self, uuid: [u8; 16]) -> Result<(), TargetError> {
        let known = self.targets_if_there()?;
        let name = names::target(Protocol::Iscsi, uuid);
        let Some(target) = known.iter().find(|target| target.name == name) else { return Ok(()) };
        // Nothing new begins; what is under way ends.
        let about = |mode: Mode, act: Act| Order::new(mode, act).target(target.number);
        self.order("close the target", about(Mode::Target, Act::Update).words("state=offline".into()))?;
        let sessions = self.order("tell its connections", about(Mode::Connection, Act::Show))?;
        for (session, connection) in shown::connections(&sessions) {
            match self.ask(&about(Mode::Connection, Act::Delete).connection(session, connection)) {
                Err(refusal) if !refusal.is(Refusal::NO_CONNECTION) => return Err(self.failed("disconnect an initiator", &refusal)),
                _ => {}
            }
        }
        let begun = Instant::now();
        while let Err(refusal) = self.ask(&about(Mode::Target, Act::Delete).force()) {
            if !refusal.is(Refusal::UNIT_ACTIVE) || begun.elapsed() > PATIENCE {
                return Err(self.failed("remove the target", &refusal));
            }
            std::thread::sleep(LOOK);
        }
        for (user, _) in &target.accounts {
            let is_used = known.iter().any(|other| other.number != target.number && other.accounts.iter().any(|(name, _)| name == user));
            if !is_used {
                self.order("forget a CHAP user", Order::new(Mode::Account, Act::Delete).words(format!("user={user}")))?;
            }
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
        let Some(target) = self.target_of(uuid).filter(|target| target.initiators.is_empty()) else { return Ok(false) };
        let Some(device) = target.devices.first() else { return Ok(false) };
        let update = |words: String| Order::new(Mode::Unit, Act::Update).target(target.number).unit(UNIT).words(words);
        self.order("open the device anew", update("targetOps online=0,".into()))?;
        self.order("open the device anew", update(format!("targetOps path={device},")))?;
        Ok(true)
    }

    fn target_of(&self, uuid: [u8; 16]) -> Option<Shown> {
        let name = names::target(Protocol::Iscsi, uuid);
        self.targets_if_there().ok()?.into_iter().find(|target| target.name == name)
    }

    fn targets(&self) -> Result<Vec<Shown>, TargetError> {
        Ok(shown::targets(&self.order("look at its targets", Order::new(Mode::Target, Act::Show))?))
    }

    /// None where it does not run, or has never obeyed us.
    fn targets_if_there(&self) -> Result<Vec<Shown>, TargetError> {
        match self.ask(&Order::new(Mode::Target, Act::Show)) {
            Ok(text) => Ok(shown::targets(&text)),
            Err(Refusal::Connection(error)) if error.kind() != std::io::ErrorKind::WouldBlock => Ok(Vec::new()),
            Err(Refusal::NotAllowed) => Ok(Vec::new()),
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
    target.devices == [share.device.as_str()]
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
