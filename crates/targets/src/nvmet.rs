//! NVMe over TCP by nvmet: below `nvmet/`.
//!
//! ```text
//! subsystems/NQN/namespaces/1        the device, with UUID and NGUID
//!                allowed_hosts/NQN   links: who may connect
//! hosts/NQN                          what they lead to
//! ports/N                            where it listens; a link to each subsystem that is reached there
//! ```
//! Ports have numbers and no names: ours are from [`PORTS`], and volumes with the same address share
//! one. The entry of a host that we made, that no subsystem allows, and that has no key, goes with the
//! last link.

use crate::error::TargetError;
use crate::steps::{Removal, Steps, step};
use crate::tree::Tree;
use crate::{Access, Protocol, Share, names, peers};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::Path;

/// Numbers of our ports: far from 1, 2, 3, which people give.
const PORTS: Range<u16> = 26_624..27_648;
const ROOT: &str = "nvmet";
/// How often what goes with another share is made again.
const TRIES: u32 = 4;
/// What initiators show as the model.
const MODEL: &str = "hearth volume";

pub(crate) fn apply(tree: &dyn Tree, share: &Share) -> Result<(), TargetError> {
    if !tree.exists(ROOT) {
        return Err(TargetError::NoTarget { protocol: Protocol::NvmeTcp, path: ROOT.into() });
    }
    let mut steps = Steps::new(tree);
    let name = names::target(Protocol::NvmeTcp, share.uuid);
    let subsystem = format!("{ROOT}/subsystems/{name}");
    steps.directory(&subsystem)?;
    steps.value(&format!("{subsystem}/attr_serial"), &names::nvme_serial(share.uuid))?;
    steps.value_if_known(&format!("{subsystem}/attr_model"), MODEL)?;
    let any = if share.access == Access::Anyone { "1" } else { "0" };
    steps.value(&format!("{subsystem}/attr_allow_any_host"), any)?;
    namespace(tree, &mut steps, &subsystem, share)?;
    if let Access::Only(hosts) = &share.access {
        for host in hosts {
            while_it_goes(|| allow(tree, &mut steps, &subsystem, host))?;
        }
    }
    for address in &share.addresses {
        while_it_goes(|| {
            let port = port(tree, &mut steps, *address)?;
            let listens = steps.try_link(&subsystem, &format!("{port}/subsystems/{name}"));
            listens.map_err(|source| TargetError::Listen { protocol: Protocol::NvmeTcp, address: *address, source })
        })?;
    }
    steps.keep();
    Ok(())
}

/// A share that goes at the same time takes along what only it used, just before we do.
fn while_it_goes(mut work: impl FnMut() -> Result<(), TargetError>) -> Result<(), TargetError> {
    let is_gone = |error: &TargetError| match error {
        TargetError::Listen { source, .. } | TargetError::Step { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    };
    (1..TRIES).find_map(|_| Some(work()).filter(|done| !done.as_ref().is_err_and(is_gone))).unwrap_or_else(work)
}

fn allow(tree: &dyn Tree, steps: &mut Steps<'_>, subsystem: &str, host: &str) -> Result<(), TargetError> {
    let entry = format!("{ROOT}/hosts/{host}");
    if !tree.exists(&entry) && steps.new_directory(&entry).map_err(|source| step("make", &entry, source))? {
        // One that is not noted stays for ever, which does no harm.
        let _ = tree.note_made(&entry);
    }
    steps.link(&entry, &format!("{subsystem}/allowed_hosts/{host}"))
}

fn namespace(tree: &dyn Tree, steps: &mut Steps<'_>, subsystem: &str, share: &Share) -> Result<(), TargetError> {
    let namespace = format!("{subsystem}/namespaces/1");
    steps.directory(&namespace)?;
    let is_on = tree.read(&format!("{namespace}/enable")).is_ok_and(|on| on == "1");
    let device = tree.read(&format!("{namespace}/device_path")).unwrap_or_default();
    if is_on && device == share.device {
        return Ok(());
    }
    if is_on {
        steps.value(&format!("{namespace}/enable"), "0")?;
    }
    steps.value(&format!("{namespace}/device_path"), &share.device)?;
    steps.value(&format!("{namespace}/device_uuid"), &names::nvme_uuid(share.uuid))?;
    steps.value(&format!("{namespace}/device_nguid"), &names::nvme_uuid(share.uuid))?;
    // Kernels that know no persistent reservations here lack it.
    steps.value_if_known(&format!("{namespace}/resv_enable"), "1")?;
    let enabled = steps.try_value(&format!("{namespace}/enable"), "1");
    enabled.map_err(|source| TargetError::Device { protocol: Protocol::NvmeTcp, device: share.device.clone(), source })
}

/// The port of ours that listens there; made if there is none.
fn port(tree: &dyn Tree, steps: &mut Steps<'_>, address: SocketAddr) -> Result<String, TargetError> {
    let (family, host, service) = (if address.is_ipv4() { "ipv4" } else { "ipv6" }, address.ip().to_string(), address.port().to_string());
    let wanted = [("addr_trtype", "tcp"), ("addr_adrfam", family), ("addr_traddr", &host), ("addr_trsvcid", &service)];
    let ports = format!("{ROOT}/ports");
    let there = tree.list(&ports).map_err(|source| step("read", &ports, source))?;
    let listens_there =
        |number: &u16| wanted.iter().all(|(key, value)| tree.read(&format!("{ports}/{number}/{key}")).is_ok_and(|v| v == *value));
    if let Some(number) = own_ports(&there).find(listens_there) {
        return Ok(format!("{ports}/{number}"));
    }
    for number in PORTS.filter(|number| !there.contains(&number.to_string())) {
        let port = format!("{ports}/{number}");
        // Others look for one at the same time.
        if steps.new_directory(&port).map_err(|source| step("make", &port, source))? {
            wanted.iter().try_for_each(|(key, value)| steps.value(&format!("{port}/{key}"), value))?;
            return Ok(port);
        }
    }
    Err(step("make", &ports, std::io::ErrorKind::StorageFull.into()))
}

fn own_ports(names: &[String]) -> impl Iterator<Item = u16> {
    names.iter().filter_map(|name| name.parse().ok()).filter(|number| PORTS.contains(number))
}

pub(crate) fn remove(tree: &dyn Tree, uuid: [u8; 16]) -> Result<(), TargetError> {
    let mut removal = Removal::new(tree);
    let name = names::target(Protocol::NvmeTcp, uuid);
    let ports = format!("{ROOT}/ports");
    for number in own_ports(&tree.list(&ports).unwrap_or_default()) {
        let subsystems = format!("{ports}/{number}/subsystems");
        removal.link(&format!("{subsystems}/{name}"));
        removal.unused_directory(&format!("{ports}/{number}"), || tree.list(&subsystems).is_ok_and(|left| left.is_empty()));
    }
    let subsystem = format!("{ROOT}/subsystems/{name}");
    if tree.exists(&subsystem) {
        let namespace = format!("{subsystem}/namespaces/1");
        removal.value(&format!("{namespace}/enable"), "0");
        removal.directory(&namespace);
        let allowed = format!("{subsystem}/allowed_hosts");
        let hosts = tree.list(&allowed).unwrap_or_default();
        removal.links_in(&allowed);
        removal.directory(&subsystem);
        for host in hosts {
            let entry = format!("{ROOT}/hosts/{host}");
            if tree.is_made_by_us(&entry) {
                removal.unused_directory(&entry, || is_idle(tree, &host));
                if !tree.exists(&entry) {
                    tree.forget_made(&entry);
                }
            }
        }
    }
    removal.end()
}

/// Whether the entry of a host says nothing any more.
fn is_idle(tree: &dyn Tree, host: &str) -> bool {
    let subsystems = tree.list(&format!("{ROOT}/subsystems")).unwrap_or_default();
    let allowed = subsystems.iter().any(|name| tree.exists(&format!("{ROOT}/subsystems/{name}/allowed_hosts/{host}")));
    let has_key = |key: &str| tree.read(&format!("{ROOT}/hosts/{host}/{key}")).is_ok_and(|key| !key.is_empty());
    !allowed && !has_key("dhchap_key") && !has_key("dhchap_ctrl_key")
}

pub(crate) fn device_of(tree: &dyn Tree, uuid: [u8; 16]) -> Option<String> {
    let namespace = format!("{ROOT}/subsystems/{}/namespaces/1", names::target(Protocol::NvmeTcp, uuid));
    let is_on = tree.read(&format!("{namespace}/enable")).is_ok_and(|on| on == "1");
    is_on.then(|| tree.read(&format!("{namespace}/device_path")).unwrap_or_default())
}

pub(crate) fn lacks(tree: &dyn Tree, share: &Share) -> Vec<String> {
    let name = names::target(Protocol::NvmeTcp, share.uuid);
    let subsystem = format!("{ROOT}/subsystems/{name}");
    if !tree.exists(&subsystem) {
        return vec!["it is not there".into()];
    }
    let mut lacks = Vec::new();
    let mut check = |holds: bool, problem: String| {
        if !holds {
            lacks.push(problem);
        }
    };
    check(device_of(tree, share.uuid).as_ref() == Some(&share.device), format!("{} is not with it", share.device));
    let is_open = share.access == Access::Anyone;
    let opens = tree.read(&format!("{subsystem}/attr_allow_any_host")).is_ok_and(|on| on == if is_open { "1" } else { "0" });
    check(opens, if is_open { "not all may connect" } else { "all may connect" }.into());
    if let Access::Only(hosts) = &share.access {
        for host in hosts {
            check(tree.is_link(&format!("{subsystem}/allowed_hosts/{host}")), format!("{host} may not connect"));
        }
    }
    let ports = own_ports(&tree.list(&format!("{ROOT}/ports")).unwrap_or_default()).collect::<Vec<_>>();
    for address in &share.addresses {
        let listens = ports.iter().any(|number| {
            let port = format!("{ROOT}/ports/{number}");
            let has = |key: &str, value: String| tree.read(&format!("{port}/{key}")).is_ok_and(|now| now == value);
            tree.is_link(&format!("{port}/subsystems/{name}"))
                && has("addr_traddr", address.ip().to_string())
                && has("addr_trsvcid", address.port().to_string())
        });
        check(listens, format!("it does not listen on {address}"));
    }
    lacks
}

/// By name where debugfs tells (some kernels from 6.11 on), else by the connections to its ports.
pub(crate) fn connected(tree: &dyn Tree, debugfs: &Path, net: &Path, uuid: [u8; 16]) -> Option<Vec<String>> {
    let name = names::target(Protocol::NvmeTcp, uuid);
    if !tree.exists(&format!("{ROOT}/subsystems/{name}")) {
        return Some(Vec::new());
    }
    let Ok(controllers) = std::fs::read_dir(debugfs.join(ROOT).join(&name)) else { return by_connection(tree, net, &name) };
    let mut hosts = Vec::new();
    for entry in controllers {
        let entry = entry.ok()?;
        if entry.file_name().to_string_lossy().starts_with("ctrl") {
            match std::fs::read_to_string(entry.path().join("hostnqn")) {
                Ok(host) => hosts.push(host.trim().to_owned()),
                // It has disconnected since.
                Err(_) if !entry.path().exists() => {}
                Err(_) => return None,
            }
        }
    }
    hosts.sort();
    hosts.dedup();
    Some(hosts)
}

fn by_connection(tree: &dyn Tree, net: &Path, name: &str) -> Option<Vec<String>> {
    let ports = format!("{ROOT}/ports");
    let (mut addresses, mut is_alone) = (Vec::new(), true);
    for number in own_ports(&tree.list(&ports).ok()?) {
        let subsystems = tree.list(&format!("{ports}/{number}/subsystems")).ok()?;
        if subsystems.iter().any(|other| other == name) {
            let read = |key: &str| tree.read(&format!("{ports}/{number}/{key}")).unwrap_or_default();
            let address = read("addr_traddr").parse::<IpAddr>().ok().zip(read("addr_trsvcid").parse::<u16>().ok());
            addresses.extend(address.map(SocketAddr::from));
            is_alone &= subsystems.len() == 1;
        }
    }
    let peers = peers::of(net, &addresses)?;
    (is_alone || peers.is_empty()).then_some(peers)
}

pub(crate) fn refresh(tree: &dyn Tree, uuid: [u8; 16]) -> Result<bool, TargetError> {
    let path = format!("{ROOT}/subsystems/{}/namespaces/1/revalidate_size", names::target(Protocol::NvmeTcp, uuid));
    if !tree.exists(&path) {
        return Ok(false);
    }
    tree.write(&path, "1").map(|()| true).map_err(|source| step("write", &path, source))
}
