//! How the shared enums are written in JSON: by the same words as on the command line.

use crate::error::ControlError;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::net::SocketAddr;
use types::{Admission, Content, Mode, OnSsdLoss};

/// serde for [`Mode`] by name.
pub mod mode {
    use super::*;

    /// Writes the name.
    pub fn serialize<S: Serializer>(mode: &Mode, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(mode.name())
    }

    /// Reads the name.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Mode, D::Error> {
        let name = String::deserialize(deserializer)?;
        Mode::from_name(&name).ok_or_else(|| D::Error::custom(format!("there is no mode \"{name}\"")))
    }
}

/// serde for [`OnSsdLoss`] by name.
pub mod on_ssd_loss {
    use super::*;

    /// Writes the name.
    pub fn serialize<S: Serializer>(what: &OnSsdLoss, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(what.name())
    }

    /// Reads a name.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OnSsdLoss, D::Error> {
        let name = String::deserialize(deserializer)?;
        on_ssd_loss_from_name(&name).ok_or_else(|| D::Error::custom(format!("{name:?} is nothing that a volume does on loss of its SSD")))
    }
}

/// What a volume does when its SSD is lost, by its name.
pub fn on_ssd_loss_from_name(name: &str) -> Option<OnSsdLoss> {
    [OnSsdLoss::Stop, OnSsdLoss::Continue].into_iter().find(|what| what.name() == name)
}

/// serde for [`Admission`] by name.
pub mod admission {
    use super::*;

    /// Writes the name.
    pub fn serialize<S: Serializer>(admission: &Admission, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(admission.name())
    }

    /// Reads the name.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Admission, D::Error> {
        let name = String::deserialize(deserializer)?;
        admission_from_name(&name).ok_or_else(|| D::Error::custom(format!("there is no admission policy \"{name}\"")))
    }
}

/// serde for [`Content`] by name.
pub mod content {
    use super::*;

    /// Writes the name.
    pub fn serialize<S: Serializer>(content: &Content, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(content.name())
    }

    /// Reads the name.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Content, D::Error> {
        let name = String::deserialize(deserializer)?;
        Content::from_name(&name).ok_or_else(|| D::Error::custom(format!("there is no content level \"{name}\"")))
    }
}

/// The admission of that name.
pub fn admission_from_name(name: &str) -> Option<Admission> {
    [Admission::Always, Admission::SecondTouch].into_iter().find(|a| a.name() == name)
}

/// A way a volume is offered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Export {
    /// A `/dev/loopN` over the own FUSE server: "loop".
    Loop,
    /// NBD on a Unix socket: "nbd".
    Nbd,
    /// NBD on TCP, loopback addresses only: "nbd:127.0.0.1:10809".
    NbdTcp(SocketAddr),
}

impl Export {
    /// Reads what stands after `--export`.
    ///
    /// # Errors
    /// [`ControlError::BadOption`] for an unknown word, and for a TCP address that is not loopback (without TLS, anybody on
    /// the network could read and write the volume).
    pub fn parse(text: &str) -> Result<Export, ControlError> {
        let wrong = |problem: String, remedy: &str| ControlError::BadOption { option: "--export", problem, remedy: remedy.into() };
        match text.split_once(':') {
            None if text == "loop" => Ok(Export::Loop),
            None if text == "nbd" => Ok(Export::Nbd),
            Some(("nbd", address)) => {
                let address: SocketAddr = address.parse().map_err(|_| {
                    wrong(format!("has the address {address:?}, which is not IP:PORT"), "write for instance nbd:127.0.0.1:10809")
                })?;
                if !address.ip().is_loopback() {
                    return Err(wrong(
                        format!("asks for {address}, which other machines can reach, and this export has no encryption"),
                        "use a loopback address such as 127.0.0.1",
                    ));
                }
                Ok(Export::NbdTcp(address))
            }
            _ => Err(wrong(format!("has the unknown value {text:?}"), "use loop, nbd or nbd:127.0.0.1:PORT")),
        }
    }
}

impl std::fmt::Display for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Export::Loop => f.write_str("loop"),
            Export::Nbd => f.write_str("nbd"),
            Export::NbdTcp(address) => write!(f, "nbd:{address}"),
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
        for text in ["loop", "nbd", "nbd:127.0.0.1:10809", "nbd:[::1]:1"] {
            assert_eq!(Export::parse(text).expect(text).to_string(), text);
        }
        for text in ["", "Loop", "nbd:", "nbd:1", "nbd:0.0.0.0:10809", "nbd:192.0.2.1:1", "iscsi"] {
            assert!(Export::parse(text).is_err(), "{text}");
        }
    }
}
