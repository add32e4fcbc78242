//! How the shared enums are written in JSON: by the same words as on the command line.

use crate::error::ControlError;
use crate::socket_path::SocketPath;
use applications::streams::Subject;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::net::SocketAddr;
use targets::Protocol;
use types::{Admission, Admit, Content, Mode, ObjectWrites, OnScan, OnSsdLoss, StreamClass};
use utoipa::ToSchema;

/// A module for `#[serde(with = ...)]`: a value is written as its name.
macro_rules! by_name {
    ($module:ident, $type:ty, $from_name:expr, $noun:literal) => {
        #[doc = concat!("serde for [`", stringify!($type), "`] by name.")]
        pub mod $module {
            use super::*;

            /// Writes the name.
            pub fn serialize<S: Serializer>(value: &$type, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(value.name())
            }

            /// Reads the name.
            pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                let name = String::deserialize(deserializer)?;
                $from_name(&name).ok_or_else(|| D::Error::custom(format!(concat!("there is no ", $noun, " {:?}"), name)))
            }
        }
    };
}

by_name!(mode, Mode, Mode::from_name, "mode");
by_name!(on_ssd_loss, OnSsdLoss, on_ssd_loss_from_name, "way to treat the loss of an SSD");
by_name!(admission, Admission, admission_from_name, "admission policy");
by_name!(protocol, Protocol, Protocol::from_name, "protocol");
by_name!(admit, Admit, Admit::from_name, "admission of an object");
by_name!(object_writes, ObjectWrites, ObjectWrites::from_name, "way of writes");
by_name!(on_scan, OnScan, OnScan::from_name, "way of scans");
by_name!(subject, Subject, Subject::from_name, "subject of a rule");
by_name!(stream_class, StreamClass, StreamClass::from_name, "class of streams");
by_name!(content, Content, Content::from_name, "content level");

/// What a volume does when its SSD is lost, by its name.
pub fn on_ssd_loss_from_name(name: &str) -> Option<OnSsdLoss> {
    [OnSsdLoss::Stop, OnSsdLoss::Continue].into_iter().find(|what| what.name() == name)
}

/// The admission of that name.
pub fn admission_from_name(name: &str) -> Option<Admission> {
    [Admission::Always, Admission::SecondTouch].into_iter().find(|a| a.name() == name)
}

/// A way a volume is offered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Export {
    /// A block device by the best way that this machine has: "block". That is ublk, or else loop.
    Block,
    /// A `/dev/ublkbN` of the kernel's ublk driver: "ublk".
    Ublk,
    /// A `/dev/loopN` over the own FUSE server: "loop".
    Loop,
    /// The same over io_uring where the kernel offers it, which costs less, and ends with the
    /// daemon: "loop:fast".
    LoopFast,
    /// NBD on a Unix socket: "nbd".
    Nbd,
    /// A virtio disk for virtual machines over vhost-user, on a Unix socket, perhaps at a path of
    /// its own: "vhost-user", "vhost-user:/run/hearth/vm1.sock".
    VhostUser(Option<SocketPath>),
    /// NBD on TCP, loopback addresses only: "nbd:127.0.0.1:10809".
    NbdTcp(SocketAddr),
    /// NBD on TCP with TLS, any address: "nbds:192.0.2.1:10809". On the command line also "nbd:..." with `--tls`.
    NbdTls(SocketAddr),
}

impl Export {
    /// Reads what stands after `--export`.
    ///
    /// # Errors
    /// [`ControlError::BadOption`] for an unknown word, and for a TCP address that is not loopback and has no TLS (anybody on
    /// the network could read and write the volume).
    pub fn parse(text: &str) -> Result<Export, ControlError> {
        let wrong = |problem: String, remedy: &str| ControlError::BadOption { option: "--export", problem, remedy: remedy.into() };
        match text.split_once(':') {
            None if text == "block" => Ok(Export::Block),
            None if text == "ublk" => Ok(Export::Ublk),
            None if text == "loop" => Ok(Export::Loop),
            Some(("loop", "fast")) => Ok(Export::LoopFast),
            None if text == "nbd" => Ok(Export::Nbd),
            None if text == "vhost-user" => Ok(Export::VhostUser(None)),
            Some(("vhost-user", path)) => match SocketPath::new(path) {
                Ok(path) => Ok(Export::VhostUser(Some(path))),
                Err((problem, remedy)) => Err(wrong(problem, remedy)),
            },
            Some((word @ ("nbd" | "nbds"), address)) => {
                let address: SocketAddr = address.parse().map_err(|_| {
                    wrong(format!("has the address {address:?}, which is not IP:PORT"), "write for instance nbd:127.0.0.1:10809")
                })?;
                if word == "nbds" {
                    return Ok(Export::NbdTls(address));
                }
                if !address.ip().is_loopback() {
                    return Err(wrong(
                        format!("asks for {address}, which other machines can reach, and this export has no encryption"),
                        "add --tls (or write nbds:IP:PORT), or use a loopback address such as 127.0.0.1",
                    ));
                }
                Ok(Export::NbdTcp(address))
            }
            _ => Err(wrong(
                format!("has the unknown value {text:?}"),
                "use block, ublk, loop, loop:fast, nbd, nbd:127.0.0.1:PORT, nbd:IP:PORT with --tls, or vhost-user",
            )),
        }
    }

    /// Whether it is a block device.
    pub const fn is_device(self) -> bool {
        matches!(self, Export::Block | Export::Ublk | Export::Loop | Export::LoopFast)
    }

    /// The TCP address, if it has one.
    pub const fn tcp_address(self) -> Option<SocketAddr> {
        match self {
            Export::NbdTcp(address) | Export::NbdTls(address) => Some(address),
            _ => None,
        }
    }
}

/// What users of an export see while the daemon is gone and comes back: killed, crashed, or
/// restarted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnRestart {
    /// Their I/O waits and is carried out by the next daemon.
    Waits,
    /// Their I/O waits if the daemon is killed. A stop ends the device: nobody keeps it, as systemd
    /// would.
    WaitsIfKilled,
    /// Their I/O waits, but writes that were under way when the daemon was killed fail: kernels
    /// before 6.9.
    WritesFail,
    /// Their I/O waits while the daemon is restarted. When it was killed, they have to connect
    /// again.
    WaitsIfRestarted,
    /// Their I/O waits and is carried out by the next daemon if they connect to it again, which
    /// virtual machines do when they are told to.
    WaitsIfReconnected,
    /// Their connection ends; they have to connect again.
    #[default]
    Ends,
}

impl OnRestart {
    /// For people: what I/O does meanwhile.
    pub const fn sentence(self) -> &'static str {
        match self {
            OnRestart::Waits => "I/O waits",
            OnRestart::WaitsIfKilled => "I/O waits if it is killed; a stop ends the device",
            OnRestart::WritesFail => "I/O waits, writes under way fail if the daemon is killed",
            OnRestart::WaitsIfRestarted => "I/O waits; if the daemon is killed, clients must connect again",
            OnRestart::WaitsIfReconnected => "I/O waits, if the virtual machine is set to reconnect",
            OnRestart::Ends => "clients must connect again",
        }
    }
}

impl std::fmt::Display for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Export::Block => f.write_str("block"),
            Export::Ublk => f.write_str("ublk"),
            Export::Loop => f.write_str("loop"),
            Export::LoopFast => f.write_str("loop:fast"),
            Export::Nbd => f.write_str("nbd"),
            Export::NbdTcp(address) => write!(f, "nbd:{address}"),
            Export::VhostUser(None) => f.write_str("vhost-user"),
            Export::VhostUser(Some(path)) => write!(f, "vhost-user:{path}"),
            Export::NbdTls(address) => write!(f, "nbds:{address}"),
        }
    }
}

impl Serialize for Export {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Export {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Export, D::Error> {
        let text = String::deserialize(deserializer)?;
        Export::parse(&text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_read_what_they_write() {
        for text in [
            "block",
            "ublk",
            "loop",
            "loop:fast",
            "nbd",
            "nbd:127.0.0.1:10809",
            "nbd:[::1]:1",
            "nbds:0.0.0.0:10809",
            "nbds:[::1]:1",
            "vhost-user",
            "vhost-user:/run/a.sock",
        ] {
            assert_eq!(Export::parse(text).expect(text).to_string(), text);
        }
        for text in [
            "",
            "Loop",
            "loop:",
            "loop:slow",
            "nbd:",
            "nbd:1",
            "nbd:0.0.0.0:10809",
            "nbd:192.0.2.1:1",
            "nbds",
            "nbds:1",
            "iscsi",
            "vhost-user:",
            "vhost-user:a",
            "vhost-user:/a/",
        ] {
            assert!(Export::parse(text).is_err(), "{text}");
        }
        assert!(Export::parse(&format!("vhost-user:/{}", "a".repeat(107))).is_err(), "too long for a socket");
    }
}
