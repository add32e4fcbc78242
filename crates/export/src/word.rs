//! A way to offer a volume with the place where it is offered: "nbd:127.0.0.1:10809".

use crate::socket_path::SocketPath;
use crate::ways::{self, Takes, Way};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;

/// Where it is offered, if that can be chosen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// There is nothing to choose, or nothing was chosen.
    Default,
    /// A TCP address.
    Address(SocketAddr),
    /// A Unix socket.
    Socket(SocketPath),
}

/// A way a volume is offered.
#[derive(Clone, Copy)]
pub struct Export {
    way: &'static Way,
    place: Place,
}

/// What is wrong with a word after `--export`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WordError {
    /// A clause whose subject is the option: "has the unknown value ...".
    pub problem: String,
    /// What to write instead.
    pub remedy: String,
}

impl Export {
    /// A block device by the best way that this machine has: "block".
    pub const BLOCK: Export = Export::of(&ways::BLOCK, Place::Default);
    /// "ublk".
    pub const UBLK: Export = Export::of(&ways::UBLK, Place::Default);
    /// "loop".
    pub const LOOP: Export = Export::of(&ways::LOOP, Place::Default);
    /// "loop:fast".
    pub const LOOP_FAST: Export = Export::of(&ways::LOOP_FAST, Place::Default);
    /// "nbd".
    pub const NBD: Export = Export::of(&ways::NBD, Place::Default);
    /// "vhost-user", on the socket that it has where none is named.
    pub const VHOST_USER: Export = Export::of(&ways::VHOST_USER, Place::Default);

    /// A way at a place that it takes.
    pub const fn of(way: &'static Way, place: Place) -> Export {
        Export { way, place }
    }

    /// "nbd:IP:PORT", for a loopback address.
    pub const fn nbd_tcp(address: SocketAddr) -> Export {
        Export::of(&ways::NBD_TCP, Place::Address(address))
    }

    /// Reads what stands after `--export`.
    ///
    /// # Errors
    /// For an unknown word, and for a TCP address that is not loopback and has no TLS (anybody on the network could read and
    /// write the volume).
    pub fn parse(text: &str) -> Result<Export, WordError> {
        if let Some(way) = ways::ALL.iter().find(|way| way.word == text && way.takes.is_optional()) {
            return Ok(Export::of(way, Place::Default));
        }
        let with_place = |way: &&&Way| way.takes != Takes::Nothing && text.split_once(':').is_some_and(|(word, _)| way.word == word);
        match ways::ALL.iter().find(with_place) {
            Some(way) => Ok(Export::of(way, way.takes.read(way, &text[way.word.len() + 1..])?)),
            None => Err(WordError { problem: format!("has the unknown value {text:?}"), remedy: format!("use {}", ways::usage()) }),
        }
    }

    /// What it is, wherever.
    pub const fn way(self) -> &'static Way {
        self.way
    }

    /// Where it is offered.
    pub const fn place(self) -> Place {
        self.place
    }

    /// Whether it is a block device.
    pub const fn is_device(self) -> bool {
        self.way.is_device
    }

    /// The TCP address, if it has one.
    pub const fn tcp_address(self) -> Option<SocketAddr> {
        match self.place {
            Place::Address(address) => Some(address),
            Place::Default | Place::Socket(_) => None,
        }
    }

    /// Whether two of these would be in one place: with TLS or without, an address is one place.
    pub fn shares_place_with(self, other: Export) -> bool {
        self.place != Place::Default && self.place == other.place
    }

    fn rank(self) -> usize {
        ways::ALL.iter().position(|way| *way == self.way).unwrap_or(ways::ALL.len())
    }
}

impl Takes {
    fn read(self, way: &Way, text: &str) -> Result<Place, WordError> {
        if self == Takes::SocketOrNothing {
            return match SocketPath::new(text) {
                Ok(path) => Ok(Place::Socket(path)),
                Err((problem, remedy)) => Err(WordError { problem, remedy: remedy.into() }),
            };
        }
        let address: SocketAddr = text.parse().map_err(|_| WordError {
            problem: format!("has the address {text:?}, which is not IP:PORT"),
            remedy: format!("write for instance {}:127.0.0.1:10809", way.word),
        })?;
        if self == Takes::LoopbackAddress && !address.ip().is_loopback() {
            return Err(WordError {
                problem: format!("asks for {address}, which other machines can reach, and this export has no encryption"),
                remedy: "add --tls (or write nbds:IP:PORT), or use a loopback address such as 127.0.0.1".into(),
            });
        }
        Ok(Place::Address(address))
    }
}

impl std::fmt::Display for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.way.word)?;
        match self.place {
            Place::Default => Ok(()),
            Place::Address(address) => write!(f, ":{address}"),
            Place::Socket(path) => write!(f, ":{path}"),
        }
    }
}

impl std::fmt::Debug for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl PartialEq for Export {
    fn eq(&self, other: &Export) -> bool {
        self.way == other.way && self.place == other.place
    }
}

impl Eq for Export {}

impl Hash for Export {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.way.word, self.place).hash(state);
    }
}

impl PartialOrd for Export {
    fn partial_cmp(&self, other: &Export) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Export {
    fn cmp(&self, other: &Export) -> std::cmp::Ordering {
        (self.rank(), self.way.word, self.place).cmp(&(other.rank(), other.way.word, other.place))
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
        Export::parse(&text).map_err(|error| D::Error::custom(format!("--export {}; {}", error.problem, error.remedy)))
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

    #[test]
    fn an_unknown_word_names_all_that_are_known() {
        let error = Export::parse("iscsi").expect_err("it is none");
        assert!(ways::ALL.iter().all(|way| error.remedy.contains(way.usage)), "{}", error.remedy);
    }

    #[test]
    fn with_tls_or_without_an_address_is_one_place() {
        let address = "127.0.0.1:10809".parse().expect("an address");
        assert!(Export::nbd_tcp(address).shares_place_with(Export::of(&ways::NBD_TLS, Place::Address(address))));
        assert!(!Export::NBD.shares_place_with(Export::NBD), "all volumes are on that socket");
    }
}
