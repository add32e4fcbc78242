//! `hearth pki`: a private authority, and certificates of it, for exports with TLS. Needs no daemon.

use crate::commands::{print, to_json};
use crate::failure::Failure;
use clap::Subcommand;
use pki::PkiError;
use pki::authority::{self, CA_VALID_S, Role, VALID_S};
use records::events::unix_s;
use serde::Serialize;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

/// Directory of the certificates in the state directory.
pub const DIRECTORY: &str = "pki";

/// Addresses of documentation: the way to them is the way out of this machine. Nothing is sent.
const OUTSIDE: [(&str, &str); 2] = [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")];

/// What to do with certificates.
#[derive(Subcommand, Debug)]
pub enum Pki {
    /// Create a private authority and the certificate of this server
    Init {
        /// A further host name or IP address by which clients know this server; may be given more than once
        #[arg(long, value_name = "HOST")]
        host: Vec<String>,
        /// Where [default: the directory pki in the daemon's state directory]
        #[arg(long, value_name = "DIR")]
        directory: Option<PathBuf>,
    },
    /// Issue a certificate to a client: ca-cert.pem, client-cert.pem and client-key.pem in a directory of its name
    Issue {
        /// The client's name; `--tls-names` of a volume lists such names
        name: String,
        /// For a server instead: server-cert.pem and server-key.pem
        #[arg(long)]
        server: bool,
        /// A further host name or IP address of that server; may be given more than once
        #[arg(long, value_name = "HOST")]
        host: Vec<String>,
        /// The directory of the authority [default: the directory pki in the daemon's state directory]
        #[arg(long, value_name = "DIR")]
        directory: Option<PathBuf>,
        /// Where to write the files [default: NAME in the directory of the authority]
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

#[derive(Serialize)]
struct Made {
    directory: PathBuf,
    name: String,
    hosts: Vec<String>,
    valid_until_unix_s: u64,
}

/// `hearth pki ...`.
///
/// # Errors
/// With the sentence to print.
pub fn pki(command: &Pki, state_directory: &Path, json: bool) -> Result<(), Failure> {
    let now_s = unix_s();
    let (made, text) = match command {
        Pki::Init { host, directory } => {
            let directory = chosen(directory.as_deref(), state_directory)?;
            let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
            let name = if authority::check_host(&own).is_ok() { own } else { "localhost".into() };
            let hosts = own_hosts(&name, host);
            authority::init(&directory, &format!("hearth on {name}"), &name, &hosts, now_s).map_err(|e| failure(&e))?;
            let text = format!(
                "authority and server certificate created in {}\nthe server is known as {}\nvalid: the authority {}, the certificate {}\n\
                 a client gets its certificate with `hearth pki issue NAME`\n",
                directory.display(),
                hosts.join(", "),
                years(CA_VALID_S),
                years(VALID_S)
            );
            (Made { directory, name, hosts, valid_until_unix_s: now_s + VALID_S }, text)
        }
        Pki::Issue { name, server, host, directory, out } => {
            let authority = chosen(directory.as_deref(), state_directory)?;
            let directory = match out {
                Some(out) => absolute(out)?,
                None => authority.join(name),
            };
            if !server && !host.is_empty() {
                return Err(Failure::usage("--host is for the certificate of a server", "add --server, or leave it out"));
            }
            let role = if *server { Role::Server(host.clone()) } else { Role::Client };
            authority::issue(&authority, name, &role, &directory, now_s).map_err(|e| missing(&e, &authority))?;
            let whose = if *server { "server" } else { "client" };
            let text = format!(
                "{whose} certificate of {name} created in {}\nvalid: {}\ncopy the directory to the {whose}; the key in it is a secret\n",
                directory.display(),
                years(VALID_S)
            );
            (Made { directory, name: name.clone(), hosts: host.clone(), valid_until_unix_s: now_s + VALID_S }, text)
        }
    };
    print(&if json { to_json(&made) } else { text })
}

fn years(seconds: u64) -> String {
    format!("{} years", seconds / (365 * pki::certificate::DAY_S))
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|e| Failure::usage(format!("{} cannot be resolved ({e})", path.display()), "give an absolute path"))
}

fn chosen(directory: Option<&Path>, state_directory: &Path) -> Result<PathBuf, Failure> {
    absolute(directory.unwrap_or(&state_directory.join(DIRECTORY)))
}

/// Names and addresses by which clients may know this machine: its own, and those given.
fn own_hosts(name: &str, given: &[String]) -> Vec<String> {
    let mut hosts: Vec<String> = vec![name.into(), "localhost".into(), "127.0.0.1".into(), "::1".into()];
    let outside = OUTSIDE.iter().filter_map(|(from, to)| {
        let socket = UdpSocket::bind(from).ok()?;
        socket.connect(to).ok()?;
        socket.local_addr().ok().map(|address: SocketAddr| address.ip()).filter(|address: &IpAddr| !address.is_unspecified())
    });
    for host in outside.map(|address| address.to_string()).chain(given.iter().cloned()) {
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    hosts
}

fn failure(error: &PkiError) -> Failure {
    match error {
        PkiError::BadName(_) | PkiError::BadHost(_) => {
            Failure { status: crate::failure::STATUS_USAGE, ..Failure::failed(error.to_string(), "") }
        }
        _ => Failure::failed(error.to_string(), ""),
    }
}

fn missing(error: &PkiError, authority: &Path) -> Failure {
    if matches!(error, PkiError::Unusable { .. }) && !authority.join(pki::files::CA_CERTIFICATE).exists() {
        let remedy = "create one with `hearth pki init`, or give its directory with --directory DIR";
        return Failure::failed(format!("there is no authority in {}", authority.display()), remedy);
    }
    failure(error)
}
