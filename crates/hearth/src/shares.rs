//! `hearth share …`: volumes and disks offered to other machines.

use crate::cli::Share;
use crate::commands::Session;
use crate::failure::Failure;
use crate::progress::patiently;
use crate::request;
use crate::table::{self, Align};
use api::names::Named;
use api::{DiskView, Done, ShareAdd, ShareView, VolumeView};
use targets::Protocol;

impl Session {
    /// `hearth share ...`.
    ///
    /// # Errors
    /// With the sentence to print.
    pub fn share(&self, command: &Share) -> Result<(), Failure> {
        match command {
            Share::Add { volume, protocol, address, initiator, any_initiator, chap } => {
                let body = ShareAdd {
                    protocol: if protocol.iscsi { Protocol::Iscsi } else { Protocol::NvmeTcp },
                    addresses: address.clone(),
                    initiators: initiator.clone(),
                    any_initiator: *any_initiator,
                    chap_file: chap.as_deref().map(|path| request::absolute("--chap", path)).transpose()?,
                };
                let path = format!("/volumes/{}/shares", request::name(Named::Volume, volume)?);
                let share: ShareView = patiently("setting up the target", || self.client.send("POST", &path, &body))?;
                self.print(&share, added)
            }
            Share::List => self.print(&self.client.get::<Vec<ShareView>>("/shares")?, |shares| list(shares)),
            Share::Show { volume, protocol } => {
                let protocol = self.which(volume, protocol.iscsi, protocol.nvme_tcp)?;
                let path = format!("/volumes/{volume}/shares/{}", protocol.name());
                self.print(&self.client.get::<ShareView>(&path)?, show)
            }
            Share::Remove { volume, protocol, force } => {
                let protocol = self.which(volume, protocol.iscsi, protocol.nvme_tcp)?;
                let path = format!("/volumes/{volume}/shares/{}?force={force}", protocol.name());
                let done: Done = patiently("taking the target down", || self.client.delete(&path))?;
                self.print(&done, |done| format!("{volume}: {}\n", done.summary.as_deref().unwrap_or("done")))
            }
        }
    }

    /// The share that is meant: the one there is, if none was named.
    fn which(&self, volume: &str, iscsi: bool, nvme_tcp: bool) -> Result<Protocol, Failure> {
        request::name(Named::Volume, volume)?;
        match (iscsi, nvme_tcp) {
            (true, _) => return Ok(Protocol::Iscsi),
            (_, true) => return Ok(Protocol::NvmeTcp),
            _ => {}
        }
        let shares = self.client.get::<Vec<ShareView>>("/shares")?;
        let own: Vec<&ShareView> = shares.iter().filter(|share| share.volume == volume).collect();
        match own.as_slice() {
            [one] => Ok(one.protocol),
            [] => {
                // Whether there is such a volume or disk, first.
                let is_disk = self.client.get::<DiskView>(&format!("/disks/{volume}")).is_ok();
                if !is_disk {
                    self.client.get::<VolumeView>(&format!("/volumes/{volume}"))?;
                }
                Err(Failure::failed(format!("\"{volume}\" is not shared"), "see `hearth share list`"))
            }
            _ => Err(Failure::usage(format!("\"{volume}\" has two shares"), "name one with --iscsi or --nvme-tcp")),
        }
    }
}

fn added(share: &ShareView) -> String {
    let limits: String = share.limits.iter().map(|limit| format!("{limit}\n")).collect();
    format!("{}\n{}\n{limits}", share.target, share.addresses.join("\n"))
}

fn list(shares: &[ShareView]) -> String {
    if shares.is_empty() {
        return "no shares; offer a volume or disk with `hearth share add NAME --iscsi` or `--nvme-tcp`\n".into();
    }
    let head = [
        ("VOLUME", Align::Left),
        ("PROTOCOL", Align::Left),
        ("STATE", Align::Left),
        ("CONNECTED", Align::Right),
        ("ADDRESS", Align::Left),
        ("TARGET", Align::Left),
    ];
    let row = |share: &ShareView| {
        vec![
            share.volume.clone(),
            share.protocol.title().into(),
            state(share).into(),
            share.connected.as_ref().map_or("unknown".into(), |connected| connected.len().to_string()),
            share.addresses.join(" "),
            share.target.clone(),
        ]
    };
    let troubles = shares.iter().filter_map(|share| {
        let remedy = share.remedy.as_deref().filter(|r| !r.is_empty()).map_or(String::new(), |r| format!("; {r}"));
        let what = if share.device.is_some() { "may not be shared" } else { "is not shared" };
        Some(format!("{} {what} by {}: {}{remedy}\n", share.volume, share.protocol.title(), share.problem.as_ref()?))
    });
    table::layout(&head, &shares.iter().map(row).collect::<Vec<_>>()) + &troubles.collect::<String>()
}

fn show(share: &ShareView) -> String {
    let listed = |names: &[String], none: &str| if names.is_empty() { none.into() } else { names.join(", ") };
    let mut pairs = vec![
        ("volume", share.volume.clone()),
        ("protocol", share.protocol.title().into()),
        ("state", state(share).into()),
        ("target", share.target.clone()),
        ("serial number", share.serial.clone()),
        ("world-wide name", share.wwn.clone()),
        ("address", share.addresses.join(", ")),
        ("served by", share.server.as_deref().map_or("none now", served_by).into()),
        ("device", share.device.clone().unwrap_or_else(|| "none now".into())),
        ("initiators", listed(&share.initiators, "all")),
        ("connected", share.connected.as_ref().map_or("unknown".into(), |names| listed(names, "none"))),
    ];
    pairs.extend(share.chap_file.iter().map(|file| ("CHAP", file.clone())));
    pairs.extend(share.limits.iter().map(|limit| ("limit", limit.clone())));
    pairs.extend(share.problem.iter().map(|problem| ("problem", problem.clone())));
    pairs.extend(share.remedy.iter().filter(|remedy| !remedy.is_empty()).map(|remedy| ("what to do", remedy.clone())));
    table::pairs(&pairs)
}

fn served_by(server: &str) -> &str {
    match server {
        "lio" => "the kernel (LIO)",
        "nvmet" => "the kernel (nvmet)",
        other => other,
    }
}

fn state(share: &ShareView) -> &'static str {
    match (&share.device, &share.problem) {
        (Some(_), None) => "shared",
        (Some(_), Some(_)) => "unknown",
        (None, Some(_)) => "failed",
        (None, None) => "waiting",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn view(connected: Option<&[&str]>) -> ShareView {
        let view = json!({
            "volume": "v", "protocol": "iscsi", "target": "iqn.x:y", "serial": "1", "wwn": "naa.1", "addresses": [], "initiators": [],
            "device": "/dev/loop7", "connected": connected, "problem": connected.is_none().then_some("tgt does not answer"),
        });
        serde_json::from_value(view).expect("a share")
    }

    #[test]
    fn nobody_connected_and_nothing_known_are_told_apart() {
        let check = |connected, expected: &str, in_list: &str| {
            let share = view(connected);
            let words: Vec<String> = show(&share).split_whitespace().map(str::to_owned).collect();
            assert!(words.windows(2).any(|pair| pair == ["connected:", expected]), "{words:?}");
            assert!(list(&[share]).contains(in_list));
        };
        check(None, "unknown", "v may not be shared by iSCSI: tgt does not answer");
        check(Some(&[]), "none", " 0 ");
        check(Some(&["iqn.a:b"]), "iqn.a:b", " 1 ");
    }
}
