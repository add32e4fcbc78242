//! iSCSI by LIO: below `target/`.
//!
//! ```text
//! core/iblock_N/hearth-VOLUME        the device, with its serial number (set before it is enabled)
//! iscsi/IQN/tpgt_1/lun/lun_0/…       a link to it
//!                  acls/INITIATOR/   who may connect, what it must know, and what it sees
//!                  np/ADDRESS:PORT   where it listens
//! ```
//! The names are those that LIO's own tools use (`targetcli` shows all of it). A directory of the
//! core that carries another serial number is not this volume's.

use crate::error::TargetError;
use crate::steps::{Removal, Steps, step};
use crate::tree::Tree;
use crate::{Access, Chap, Protocol, Share, names};
use std::io;
use std::path::PathBuf;

const CORE: &str = "target/core";
const FABRIC: &str = "target/iscsi";
/// Where LIO keeps persistent reservations, unless `target/dbroot` says otherwise.
const DATABASE: &str = "/var/target";

pub(crate) fn apply(tree: &dyn Tree, share: &Share) -> Result<(), TargetError> {
    if !tree.exists("target") {
        return Err(TargetError::NoTarget { protocol: Protocol::Iscsi, path: "target".into() });
    }
    // Also one that was never enabled: a daemon was killed before it came to that.
    if device_of(tree, &share.volume, share.uuid).is_some_and(|device| device != share.device || !is_enabled(tree, share)) {
        remove(tree, &share.volume, share.uuid)?;
    }
    let mut steps = Steps::new(tree);
    // The kernel loads the module when the directory is made.
    let fabric = steps.try_directory(FABRIC);
    fabric.map_err(|_| TargetError::NoTarget { protocol: Protocol::Iscsi, path: FABRIC.into() })?;
    let store = backstore(tree, &mut steps, share)?;
    let group = group(share.uuid);
    steps.directory(&format!("{FABRIC}/{}", names::target(Protocol::Iscsi, share.uuid)))?;
    steps.directory(&group)?;
    let open = share.access == Access::Anyone;
    for (name, value) in [
        ("authentication", flag(share.chap.is_some())),
        ("generate_node_acls", flag(open)),
        ("cache_dynamic_acls", flag(open)),
        // Who may not connect does not learn that it is there.
        ("demo_mode_discovery", flag(open)),
        ("demo_mode_write_protect", "0"),
        ("prod_mode_write_protect", "0"),
    ] {
        steps.value_if_known(&format!("{group}/attrib/{name}"), value)?;
    }
    steps.value_if_known(&format!("{group}/param/TargetAlias"), &share.volume)?;
    let lun = format!("{group}/lun/lun_0");
    steps.directory(&lun)?;
    steps.link(&store, &format!("{lun}/{}", store_name(&share.volume)))?;
    match &share.access {
        Access::Anyone => secrets(&steps, &group, share.chap.as_ref())?,
        Access::Only(initiators) => {
            for initiator in initiators {
                let entry = format!("{group}/acls/{initiator}");
                steps.directory(&entry)?;
                secrets(&steps, &entry, share.chap.as_ref())?;
                let mapped = format!("{entry}/lun_0");
                steps.directory(&mapped)?;
                steps.link(&lun, &format!("{mapped}/{}", store_name(&share.volume)))?;
                steps.value_if_known(&format!("{mapped}/write_protect"), flag(share.read_only))?;
            }
        }
    }
    for address in &share.addresses {
        let listens = steps.try_directory(&format!("{group}/np/{address}"));
        listens.map_err(|source| TargetError::Listen { protocol: Protocol::Iscsi, address: *address, source })?;
    }
    steps.value(&format!("{group}/enable"), "1")?;
    steps.keep();
    Ok(())
}

/// The device in the core; gives its directory.
fn backstore(tree: &dyn Tree, steps: &mut Steps<'_>, share: &Share) -> Result<String, TargetError> {
    if let Some(there) = store_of(tree, &share.volume, share.uuid) {
        return Ok(there);
    }
    // One that a daemon has left that was killed here: it has no serial number yet.
    unfinished(tree, &share.volume).iter().for_each(|store| drop(tree.remove(store)));
    let adapters = tree.list(CORE).map_err(|source| step("read", CORE, source))?;
    let mut free = (0..).filter(|n| !adapters.contains(&format!("iblock_{n}"))).map(|n| format!("{CORE}/iblock_{n}"));
    let adapter = loop {
        let adapter = free.next().expect("one of infinitely many numbers is free");
        // Others look for one at the same time.
        if steps.new_directory(&adapter).map_err(|source| step("make", &adapter, source))? {
            break adapter;
        }
    };
    let store = format!("{adapter}/{}", store_name(&share.volume));
    steps.directory(&store)?;
    let read_only = if share.read_only { ",readonly=1" } else { "" };
    steps.value(&format!("{store}/control"), &format!("udev_path={}{read_only}", share.device))?;
    steps.value(&format!("{store}/udev_path"), &share.device)?;
    steps.value(&format!("{store}/wwn/vpd_unit_serial"), &names::scsi_serial(share.uuid))?;
    let enabled = steps.try_value(&format!("{store}/enable"), "1");
    enabled.map_err(|source| TargetError::Device { protocol: Protocol::Iscsi, device: share.device.clone(), source })?;
    // Known only when the device is open: one that cannot discard refuses the first two.
    for name in ["emulate_tpu", "emulate_tpws"] {
        let _ = steps.value_if_known(&format!("{store}/attrib/{name}"), "1");
    }
    for name in ["emulate_caw", "emulate_pr"] {
        steps.value_if_known(&format!("{store}/attrib/{name}"), "1")?;
    }
    reservations(tree, steps, &store, share.uuid)?;
    Ok(store)
}

/// Persistent reservations that are to outlive a loss of power: the kernel writes them to a file, and
/// wants to be told of them again, before anybody sees the device.
fn reservations(tree: &dyn Tree, steps: &Steps<'_>, store: &str, uuid: [u8; 16]) -> Result<(), TargetError> {
    let database = tree.read("target/dbroot").ok().filter(|root| root.starts_with('/'));
    let directory = PathBuf::from(database.unwrap_or_else(|| DATABASE.into())).join("pr");
    // Where it cannot be made, the kernel refuses reservations that are to outlive a loss of power, and
    // no others.
    let _ = tree.make_outside(&directory);
    let Some(text) = tree.read_outside(&directory.join(format!("aptpl_{}", names::scsi_serial(uuid)))) else { return Ok(()) };
    for registration in registrations(&text) {
        steps.value(&format!("{store}/pr/res_aptpl_metadata"), &registration)?;
    }
    Ok(())
}

/// What the kernel wrote of each registration, as it wants to read it.
fn registrations(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut lines = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with("PR_REG_START:") {
            lines.clear();
        } else if line.starts_with("PR_REG_END:") {
            all.push(lines.join(","));
        } else if !line.is_empty() {
            lines.push(line);
        }
    }
    all
}

/// What initiators must know, and what the target must know.
fn secrets(steps: &Steps<'_>, entry: &str, chap: Option<&Chap>) -> Result<(), TargetError> {
    let Some(chap) = chap else { return Ok(()) };
    let mut values = vec![("userid", chap.user()), ("password", chap.password())];
    if let Some((user, password)) = chap.mutual() {
        values.extend([("userid_mutual", user), ("password_mutual", password)]);
    }
    values.into_iter().try_for_each(|(name, value)| steps.value(&format!("{entry}/auth/{name}"), value))
}

pub(crate) fn remove(tree: &dyn Tree, volume: &str, uuid: [u8; 16]) -> Result<(), TargetError> {
    let mut removal = Removal::new(tree);
    let target = format!("{FABRIC}/{}", names::target(Protocol::Iscsi, uuid));
    if tree.exists(&target) {
        let group = group(uuid);
        // Ends its sessions.
        removal.value(&format!("{group}/enable"), "0");
        for portal in tree.list(&format!("{group}/np")).unwrap_or_default() {
            removal.directory(&format!("{group}/np/{portal}"));
        }
        for initiator in tree.list(&format!("{group}/acls")).unwrap_or_default() {
            let entry = format!("{group}/acls/{initiator}");
            for mapped in tree.list(&entry).unwrap_or_default().iter().filter(|name| name.starts_with("lun_")) {
                removal.links_in(&format!("{entry}/{mapped}"));
                removal.directory(&format!("{entry}/{mapped}"));
            }
            removal.directory(&entry);
        }
        for lun in tree.list(&format!("{group}/lun")).unwrap_or_default() {
            removal.links_in(&format!("{group}/lun/{lun}"));
            removal.directory(&format!("{group}/lun/{lun}"));
        }
        removal.directory(&group);
        removal.directory(&target);
    }
    if let Some(store) = store_of(tree, volume, uuid) {
        removal.directory(&store);
        let adapter = store.rsplit_once('/').expect("it is in an adapter").0;
        // One that somebody else uses too stays.
        let own = |name: &String| !["hba_info", "hba_mode"].contains(&name.as_str());
        removal.unused_directory(adapter, || !tree.list(adapter).unwrap_or_default().iter().any(own));
    }
    removal.end()
}

pub(crate) fn device_of(tree: &dyn Tree, volume: &str, uuid: [u8; 16]) -> Option<String> {
    let store = store_of(tree, volume, uuid)?;
    Some(tree.read(&format!("{store}/udev_path")).unwrap_or_default())
}

pub(crate) fn lacks(tree: &dyn Tree, share: &Share, has_secrets: bool) -> Vec<String> {
    let group = group(share.uuid);
    if !tree.exists(&group) {
        return vec!["it is not there".into()];
    }
    let mut lacks = Vec::new();
    let mut check = |holds: bool, problem: String| {
        if !holds {
            lacks.push(problem);
        }
    };
    let is = |path: String, value: &str| tree.read(&path).is_ok_and(|now| now == value);
    let link = store_name(&share.volume);
    let device = device_of(tree, &share.volume, share.uuid);
    check(device.as_ref() == Some(&share.device) && is_enabled(tree, share), format!("{} is not with it", share.device));
    check(tree.is_link(&format!("{group}/lun/lun_0/{link}")), "LUN 0 is not there".into());
    check(is(format!("{group}/attrib/authentication"), flag(has_secrets)), "it asks for other secrets".into());
    let is_open = share.access == Access::Anyone;
    check(
        is(format!("{group}/attrib/generate_node_acls"), flag(is_open)),
        if is_open { "not all may log in" } else { "all may log in" }.into(),
    );
    if let Access::Only(initiators) = &share.access {
        for initiator in initiators {
            let entry = format!("{group}/acls/{initiator}");
            check(tree.is_link(&format!("{entry}/lun_0/{link}")), format!("{initiator} may not log in"));
            let has_secret = tree.read(&format!("{entry}/auth/userid")).is_ok_and(|user| !user.is_empty());
            check(has_secret || !has_secrets, format!("{initiator} has no secret"));
            let write_protect = format!("{entry}/lun_0/write_protect");
            check(!tree.exists(&write_protect) || is(write_protect, flag(share.read_only)), format!("{initiator} writes otherwise"));
        }
    }
    for address in &share.addresses {
        check(tree.exists(&format!("{group}/np/{address}")), format!("it does not listen on {address}"));
    }
    check(is(format!("{group}/enable"), "1"), "it accepts no logins".into());
    lacks
}

pub(crate) fn connected(tree: &dyn Tree, uuid: [u8; 16]) -> Option<Vec<String>> {
    let group = group(uuid);
    if !tree.exists(&group) {
        return Some(Vec::new());
    }
    let mut names: Vec<String> = Vec::new();
    for initiator in tree.list(&format!("{group}/acls")).ok()? {
        let info = tree.read(&format!("{group}/acls/{initiator}/info")).ok()?;
        if info.lines().any(|line| line.starts_with("InitiatorName: ")) {
            names.push(initiator);
        }
    }
    // Those without an entry of their own, each ended by a line feed or a zero.
    let dynamic = match tree.read(&format!("{group}/dynamic_sessions")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.ok()?,
    };
    names.extend(dynamic.split(['\n', '\0']).map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned));
    names.sort();
    names.dedup();
    Some(names)
}

/// The volume's directory in the core.
fn store_of(tree: &dyn Tree, volume: &str, uuid: [u8; 16]) -> Option<String> {
    let serial = names::scsi_serial(uuid);
    let adapters = tree.list(CORE).ok()?;
    adapters.iter().filter(|name| name.starts_with("iblock_")).map(|adapter| format!("{CORE}/{adapter}/{}", store_name(volume))).find(
        |store| {
            let text = tree.read(&format!("{store}/wwn/vpd_unit_serial")).unwrap_or_default();
            text.rsplit(' ').next() == Some(serial.as_str())
        },
    )
}

fn is_enabled(tree: &dyn Tree, share: &Share) -> bool {
    store_of(tree, &share.volume, share.uuid).is_some_and(|store| tree.read(&format!("{store}/enable")).is_ok_and(|on| on == "1"))
}

/// Directories of that name without a serial number that are not enabled.
fn unfinished(tree: &dyn Tree, volume: &str) -> Vec<String> {
    let adapters = tree.list(CORE).unwrap_or_default();
    let stores = adapters.iter().map(|adapter| format!("{CORE}/{adapter}/{}", store_name(volume)));
    let is_unfinished = |store: &String| {
        let read = |name: &str| tree.read(&format!("{store}/{name}"));
        read("wwn/vpd_unit_serial").is_ok_and(|text| text.ends_with(':')) && read("enable").is_ok_and(|on| on == "0")
    };
    stores.filter(is_unfinished).collect()
}

fn flag(yes: bool) -> &'static str {
    if yes { "1" } else { "0" }
}

fn store_name(volume: &str) -> String {
    format!("hearth-{volume}")
}

fn group(uuid: [u8; 16]) -> String {
    format!("{FABRIC}/{}/tpgt_1", names::target(Protocol::Iscsi, uuid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registrations_are_read_as_the_kernel_writes_them() {
        let text = "PR_REG_START: 0\ninitiator_fabric=iSCSI\ninitiator_node=iqn.a\nsa_res_key=1\nres_holder=1\nPR_REG_END: 0\n\
                    PR_REG_START: 1\ninitiator_node=iqn.b\nPR_REG_END: 1\nPR_REG_START: 2\ncut off";
        assert_eq!(registrations(text), ["initiator_fabric=iSCSI,initiator_node=iqn.a,sa_res_key=1,res_holder=1", "initiator_node=iqn.b"]);
        assert!(registrations("No Registrations or Reservations").is_empty());
    }
}
