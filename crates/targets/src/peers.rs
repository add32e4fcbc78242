//! Who is connected to an address of this machine, from the kernel's lists of TCP connections
//! (`Documentation/networking/proc_net_tcp.rst`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// The state of a connection that stands.
const ESTABLISHED: &str = "01";

/// The addresses of machines with a connection to one of these; `None` if the lists cannot be read.
pub(crate) fn of(net: &Path, addresses: &[SocketAddr]) -> Option<Vec<String>> {
    let lists: Vec<String> = ["tcp", "tcp6"].iter().filter_map(|name| std::fs::read_to_string(net.join(name)).ok()).collect();
    if lists.is_empty() {
        return None;
    }
    let connections = lists.iter().flat_map(|text| text.lines().skip(1)).filter_map(connection);
    let is_ours = |local: &SocketAddr| {
        addresses.iter().any(|address| address.port() == local.port() && (address.ip() == local.ip() || address.ip().is_unspecified()))
    };
    let mut peers: Vec<String> =
        connections.filter(|(local, _)| is_ours(local)).map(|(_, remote)| remote.ip().to_canonical().to_string()).collect();
    peers.sort();
    peers.dedup();
    Some(peers)
}

/// Both ends of a connection that stands.
fn connection(line: &str) -> Option<(SocketAddr, SocketAddr)> {
    let mut words = line.split_whitespace().skip(1);
    let (local, remote, state) = (words.next()?, words.next()?, words.next()?);
    Some((end(local)?, end(remote)?)).filter(|_| state == ESTABLISHED)
}

/// `0100007F:1144`: words of four bytes, each as the processor stores it.
fn end(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let words = address.as_bytes().chunks(8).map(|word| u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok());
    let bytes: Vec<u8> = words.collect::<Option<Vec<u32>>>()?.into_iter().flat_map(u32::to_ne_bytes).collect();
    let ip = match bytes.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of a little-endian machine, as all are that this runs on.
    #[test]
    fn connections_to_an_address_are_found_in_both_lists() {
        let directory = tempfile::tempdir().expect("a directory");
        let net = directory.path();
        assert_eq!(of(net, &[]), None);
        let head = "  sl  local_address rem_address   st tx_queue rx_queue\n";
        let four = "   0: 0100007F:1144 00000000:0000 0A 0:0\n   1: 0100007F:1144 0700020A:C001 01 0:0\n   2: 0100007F:0016 0800020A:C002 01 0:0\n";
        let six = "   0: 0000000000000000FFFF00000100007F:1144 0000000000000000FFFF00000900020A:C003 01 0\n\
                   1: 00000000000000000000000001000000:1144 00000000000000000000000001000000:C004 01 0\n";
        std::fs::write(net.join("tcp"), format!("{head}{four}")).expect("there is room");
        std::fs::write(net.join("tcp6"), format!("{head}{six}")).expect("there is room");
        let at = |text: &str| of(net, &[text.parse().expect("an address")]).expect("it can be read");
        assert_eq!(at("127.0.0.1:4420"), ["10.2.0.7", "10.2.0.9"]);
        assert_eq!(at("[::1]:4420"), ["::1"]);
        assert_eq!(at("0.0.0.0:4420"), ["10.2.0.7", "10.2.0.9", "::1"]);
        assert!(at("127.0.0.1:3260").is_empty());
    }
}
