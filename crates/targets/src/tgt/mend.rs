//! What a target lacks of what it is to be, and how it gets that while initiators stay logged in.

use super::shown::{Shown, Unit, covers, portals};
use super::wire::{Act, Mode, Order, Refusal, Tgtd};
use super::{Made, UNIT, allowed, forget, portal};
use crate::error::TargetError;
use crate::{Chap, Share, names};
use std::net::SocketAddr;
use std::path::Path;

/// Clauses for people, always in the same order.
pub(super) fn lacks(target: &Shown, share: &Share, has_secrets: bool) -> Vec<String> {
    let mut lacks = Vec::new();
    if !target.is_ready {
        lacks.push("it accepts no logins".to_owned());
    }
    let disk = match target.unit(UNIT) {
        None => Some("is not there"),
        Some(unit) if unit.path.as_deref() != Some(&share.device) => Some("is on another device"),
        Some(unit) if !unit.is_online => Some("is closed"),
        Some(unit) if !is_named(unit, share) => Some("has another name"),
        Some(unit) if !is_opened_so(unit, share) && target.initiators.is_empty() => Some("is opened otherwise"),
        Some(_) => None,
    };
    lacks.extend(disk.map(|problem| format!("LUN {UNIT} {problem}")));
    if has_secrets && target.accounts.iter().all(|(_, is_outgoing)| *is_outgoing) {
        lacks.push("it asks for no secret".to_owned());
    }
    let wanted = allowed(share);
    let missing = wanted.iter().filter(|(_, who)| !target.allowed.contains(who));
    lacks.extend(missing.map(|(_, who)| format!("{who} may not log in")));
    lacks.extend(strangers(target, share).map(|who| format!("{who} may log in")));
    lacks
}

/// Those that may log in and are not to.
fn strangers<'a>(target: &'a Shown, share: &Share) -> impl Iterator<Item = &'a String> {
    let wanted = allowed(share);
    target.allowed.iter().filter(move |who| !wanted.iter().any(|(_, name)| name == *who))
}

fn is_named(unit: &Unit, share: &Share) -> bool {
    unit.wwn == names::naa(share.uuid) && unit.serial == names::scsi_serial(share.uuid) && unit.is_read_only == share.read_only
}

/// Whether it goes past the page cache if, and only if, others write to the device as well. With it, commands work that `tgtd` carries out in
/// memory of its own, which direct I/O does not take: VERIFY, WRITE AND VERIFY, ORWRITE, WRITE SAME. FUA and SYNCHRONIZE CACHE are an
/// `fdatasync` of the device either way, so what they promise reaches the volume.
pub(super) fn is_opened_so(unit: &Unit, share: &Share) -> bool {
    unit.is_direct != share.is_alone
}

/// CHAP users as they are to be, and whether it is the target that must know this one.
pub(super) fn accounts(chap: Option<&Chap>) -> Vec<(&str, &str, bool)> {
    let mutual = chap.and_then(Chap::mutual).map(|(user, password)| (user, password, true));
    chap.iter().map(|chap| (chap.user(), chap.password(), false)).chain(mutual).collect()
}

impl Tgtd {
    /// Gives it what it lacks. Who may log in comes last.
    pub(super) fn mend(&self, target: &Shown, share: &Share, known: &[Shown], made: &mut Made) -> Result<(), TargetError> {
        self.listen(&share.addresses, made)?;
        if let Err(error) = self.secrets(target, share.chap.as_ref(), known, made) {
            // Nobody comes in without a secret; those that are in stay.
            if target.accounts.iter().all(|(_, is_outgoing)| *is_outgoing) {
                target.allowed.iter().for_each(|who| drop(self.forbid(target.number, who)));
            }
            return Err(error);
        }
        self.disk(target, share)?;
        strangers(target, share).try_for_each(|who| self.forbid(target.number, who))?;
        for (kind, who) in allowed(share).into_iter().filter(|(_, who)| !target.allowed.contains(who)) {
            let order = Order::new(Mode::Target, Act::Bind).target(target.number);
            self.order("allow an initiator", order.words(format!("{kind}={who}")))?;
        }
        if target.is_ready { Ok(()) } else { self.set_ready(target.number, true) }
    }

    /// Whether it is a name or an address is not told.
    fn forbid(&self, number: i32, who: &str) -> Result<(), TargetError> {
        let unbind = |kind: &str| self.ask(&Order::new(Mode::Target, Act::Unbind).target(number).words(format!("initiator-{kind}={who}")));
        let done = match unbind("name") {
            Err(refusal) if refusal.is(Refusal::NO_ACL) => unbind("address"),
            done => done,
        };
        done.map(drop).map_err(|refusal| self.failed("forbid an initiator", &refusal))
    }

    fn disk(&self, target: &Shown, share: &Share) -> Result<(), TargetError> {
        let order = |act: Act| Order::new(Mode::Unit, act).target(target.number).unit(UNIT);
        let there = target.unit(UNIT);
        // Opened anew, it is gone for a moment: not under those who are logged in.
        let may_stay = |unit: &&Unit| is_opened_so(unit, share) || !target.initiators.is_empty();
        let stays = there.filter(|unit| unit.path.as_deref() == Some(&share.device)).filter(may_stay);
        if stays.is_none() {
            if there.is_some() {
                self.when_idle("give up the disk", &order(Act::Delete))?;
            }
            let flags = if share.is_alone { "" } else { "bsoflags=direct," };
            let words = format!("path={},bstype=rdwr,{flags}blocksize={}", share.device, sector_bytes(&share.device));
            self.order("take the device", order(Act::New).words(words))?;
        }
        if !stays.is_some_and(|unit| is_named(unit, share)) {
            let facts = format!(
                "targetOps scsi_id={},scsi_sn={},vendor_id=HEARTH,product_id=volume,thin_provisioning=1,lbppbe={},readonly={},",
                names::naa(share.uuid),
                names::scsi_serial(share.uuid),
                physical_exponent(&share.device),
                u8::from(share.read_only)
            );
            self.order("name the disk", order(Act::Update).words(facts))?;
        }
        if stays.is_some_and(|unit| !unit.is_online) {
            self.order("open the disk", order(Act::Update).words("targetOps online=1,".into()))?;
        }
        Ok(())
    }

    fn secrets(&self, target: &Shown, chap: Option<&Chap>, known: &[Shown], made: &mut Made) -> Result<(), TargetError> {
        let has = |user: &str, is_outgoing: bool| {
            let same = |(name, outgoing): &(String, bool)| *outgoing == is_outgoing && (is_outgoing || name == user);
            target.accounts.iter().any(same)
        };
        for (user, password, is_outgoing) in accounts(chap).into_iter().filter(|(user, _, is_outgoing)| !has(user, *is_outgoing)) {
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
            let bind = Order::new(Mode::Account, Act::Bind).target(target.number).words(format!("user={user}"));
            self.order("take a CHAP user", if is_outgoing { bind.outgoing() } else { bind })?;
        }
        Ok(())
    }

    /// Whether a target has that CHAP user, this share has, or the server for discovery.
    fn has_user(&self, known: &[Shown], made: &Made, user: &str) -> bool {
        made.users.iter().any(|own| own == user)
            || known.iter().any(|target| target.accounts.iter().any(|(name, _)| name == user))
            || self.server_has_user(user)
    }

    /// Where it does not tell, it may.
    pub(super) fn server_has_user(&self, user: &str) -> bool {
        let is_listed = |text: String| text.lines().any(|line| line.trim().trim_end_matches(" (outgoing)") == user);
        self.ask(&Order::new(Mode::System, Act::Show)).map_or(true, is_listed)
    }

    /// Where it is to listen and does not.
    pub(super) fn deaf(&self, addresses: &[SocketAddr]) -> Result<Vec<SocketAddr>, TargetError> {
        let portals = portals(&self.order("tell its addresses", Order::new(Mode::Portal, Act::Show))?);
        Ok(addresses.iter().filter(|address| !covers(&portals, **address)).copied().collect())
    }

    /// Has it listen there, too.
    fn listen(&self, addresses: &[SocketAddr], made: &mut Made) -> Result<(), TargetError> {
        for address in self.deaf(addresses)? {
            self.ask(&portal(Act::New, address)).map_err(|refusal| match refusal {
                Refusal::Code(_) => TargetError::Tgt {
                    problem: format!("tgt cannot listen on {address}"),
                    remedy: "give an address of this machine, and a port that no other program has".into(),
                },
                refusal => self.failed("listen", &refusal),
            })?;
            made.portals.push(address);
        }
        Ok(())
    }
}

fn sector_bytes(device: &str) -> u32 {
    queue_limit(device, "logical_block_size").unwrap_or(512)
}

/// How often a physical block has twice a logical one's bytes.
fn physical_exponent(device: &str) -> u32 {
    let physical_bytes = queue_limit(device, "physical_block_size").unwrap_or(512);
    (physical_bytes / sector_bytes(device)).max(1).ilog2()
}

fn queue_limit(device: &str, name: &str) -> Option<u32> {
    let path = Path::new("/sys/class/block").join(Path::new(device).file_name()?).join("queue").join(name);
    std::fs::read_to_string(path).ok()?.trim().parse().ok().filter(|bytes| *bytes > 0)
}
