//! The handshake of TLS for one connection: its side on the reactor, and what the desk does for it.

use super::credentials::Tls;
use super::desk::{Counter, Ready};
use super::record::{HEADER_BYTES, Keys, header};
use rustls::kernel::KernelConnection;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

/// What the two sides have agreed on.
pub(crate) struct Agreed {
    pub(crate) receive: Keys,
    pub(crate) send: Keys,
    /// Makes the keys that follow these.
    pub(crate) next: KernelConnection<ServerConnectionData>,
    /// Names in the client's certificate.
    pub(crate) names: Vec<String>,
}

/// How a handshake goes on.
pub(super) enum Outcome {
    /// With records that have not come yet.
    More,
    Agreed(Box<Agreed>),
    /// Not at all. The output says why.
    Failed,
}

/// What is brought to the desk.
pub(super) struct Errand {
    pub(super) tls: Arc<Tls>,
    pub(super) negotiation: Box<Negotiation>,
    /// Whole records.
    pub(super) input: Vec<u8>,
    pub(super) counter: Arc<Counter>,
}

/// The handshake itself.
pub(super) struct Negotiation {
    peer: Option<IpAddr>,
    connection: Option<UnbufferedServerConnection>,
    /// Records that rustls has not used up: a message may need several.
    incoming: Vec<u8>,
}

impl Negotiation {
    /// Takes whole records; gives what is to be sent, and how it goes on.
    pub(super) fn run(&mut self, tls: &Tls, input: &[u8]) -> (Vec<u8>, Outcome) {
        let (config, verifier) = tls.config();
        let mut output = Vec::new();
        let result = self.records(config, input, &mut output);
        let presented = verifier.take_presented();
        match result {
            Ok(None) => (output, Outcome::More),
            Ok(Some(agreed)) => (output, Outcome::Agreed(Box::new(agreed))),
            Err(error) => {
                self.tell(tls, presented, &error);
                (output, Outcome::Failed)
            }
        }
    }

    fn tell(&self, tls: &Tls, presented: Option<Vec<String>>, error: &rustls::Error) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        let from = self.peer.map_or_else(String::new, |peer| format!(" from {peer}"));
        let what = match presented {
            Some(names) => format!("its certificate {} is not accepted: {}", pki::names::shown(&names), reason(error)),
            None => reason(error),
        };
        tls.refusals.tell(&format!("an NBD client{from} was refused: {what}"), now_ns);
    }

    fn records(
        &mut self,
        config: Arc<rustls::ServerConfig>,
        mut input: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<Option<Agreed>, rustls::Error> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => UnbufferedServerConnection::new(config)?,
        };
        // One at a time: what comes behind the last of the handshake is not rustls's.
        while let Some(length) = record_bytes(input) {
            let (record, rest) = input.split_at(length);
            input = rest;
            self.incoming.extend_from_slice(record);
            if self.step(&mut connection, output)? {
                if !self.incoming.is_empty() {
                    return Err(rustls::Error::General("a message was begun behind the handshake".into()));
                }
                self.incoming.extend_from_slice(input);
                return agreed(connection).map(Some);
            }
        }
        self.connection = Some(connection);
        Ok(None)
    }

    /// Has rustls use what is there; gives whether the handshake is over.
    fn step(&mut self, connection: &mut UnbufferedServerConnection, output: &mut Vec<u8>) -> Result<bool, rustls::Error> {
        loop {
            let UnbufferedStatus { discard, state } = connection.process_tls_records(&mut self.incoming);
            let done = match state {
                Ok(ConnectionState::EncodeTlsData(data)) => {
                    encode(data, output);
                    None
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    None
                }
                Ok(ConnectionState::BlockedHandshake) => Some(Ok(false)),
                Ok(ConnectionState::WriteTraffic(_)) => Some(Ok(true)),
                Ok(_) => Some(Err(rustls::Error::HandshakeNotComplete)),
                Err(error) => Some(Err(error)),
            };
            self.incoming.drain(..discard);
            match done {
                None => {}
                Some(Ok(over)) => return Ok(over),
                Some(Err(error)) => {
                    self.last_words(connection, output);
                    return Err(error);
                }
            }
        }
    }

    /// After an error: what rustls wants to have sent, an alert. It is asked for that alone: it must not read on.
    fn last_words(&mut self, connection: &mut UnbufferedServerConnection, output: &mut Vec<u8>) {
        while connection.wants_write() {
            let UnbufferedStatus { discard, state } = connection.process_tls_records(&mut self.incoming);
            let Ok(ConnectionState::EncodeTlsData(data)) = state else { return };
            encode(data, output);
            self.incoming.drain(..discard);
        }
    }
}

fn encode(mut data: EncodeTlsData<'_, ServerConnectionData>, output: &mut Vec<u8>) {
    let mut needed = 0;
    if let Err(EncodeError::InsufficientSize(size)) = data.encode(&mut []) {
        needed = size.required_size;
    }
    let from = output.len();
    output.resize(from + needed, 0);
    let written = data.encode(&mut output[from..]).unwrap_or(0);
    output.truncate(from + written);
}

fn agreed(connection: UnbufferedServerConnection) -> Result<Agreed, rustls::Error> {
    let certificate = connection.peer_certificates().and_then(<[_]>::first).ok_or(rustls::Error::NoCertificatesPresented)?;
    let names = pki::names::names_of(certificate);
    let version = connection.protocol_version();
    let (secrets, next) = connection.dangerous_into_kernel_connection()?;
    let keys = |secrets| Keys::new(version, secrets).ok_or(rustls::Error::General("the cipher is not known here".into()));
    Ok(Agreed { receive: keys(secrets.rx)?, send: keys(secrets.tx)?, next, names })
}

/// Length of the first record, if it is there.
fn record_bytes(input: &[u8]) -> Option<usize> {
    let (_, length) = header(input.first_chunk()?)?;
    let whole = HEADER_BYTES + length;
    (input.len() >= whole).then_some(whole)
}

/// Why a client was refused, as a clause.
fn reason(error: &rustls::Error) -> String {
    use rustls::CertificateError as Bad;
    match error {
        rustls::Error::NoCertificatesPresented => "it shows no certificate: give it the files of `hearth pki issue NAME`".into(),
        rustls::Error::InvalidCertificate(bad) => match bad {
            Bad::Expired | Bad::ExpiredContext { .. } => "it has expired: issue another one".into(),
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => "it is not valid yet: compare the clocks".into(),
            Bad::UnknownIssuer | Bad::BadSignature => "another authority has issued it: issue one with the authority of this server".into(),
            Bad::Revoked => "it was revoked".into(),
            Bad::InvalidPurpose | Bad::InvalidPurposeContext { .. } => "it is not for clients".into(),
            other => format!("{other}"),
        },
        rustls::Error::AlertReceived(alert) => {
            format!("it does not accept this server ({alert:?}): it needs the server's ca-cert.pem, and a name of the server's certificate")
        }
        rustls::Error::PeerIncompatible(why) => format!("it offers no TLS that is good enough ({why:?})"),
        other => format!("its TLS handshake failed ({other})"),
    }
}

/// The side on the reactor.
pub(crate) struct Negotiating {
    tls: Arc<Tls>,
    /// Here, or at the desk.
    negotiation: Option<Box<Negotiation>>,
    counter: Arc<Counter>,
    /// Where the kernel writes that the bell has rung.
    rung: Box<[u8; 8]>,
}

/// What is to be done next.
pub(crate) enum Step {
    /// More has to come.
    NeedInput,
    /// So many bytes of the input were brought to the desk: wait for the bell.
    Wait(usize),
    /// The client does not speak TLS.
    Broken,
    /// The handshake is over. The bytes came behind it.
    Agreed(Box<Agreed>, Vec<u8>),
    /// The client was refused.
    Failed,
}

impl Negotiating {
    pub(crate) fn new(tls: Arc<Tls>, peer: Option<IpAddr>) -> io::Result<Negotiating> {
        let negotiation = Box::new(Negotiation { peer, connection: None, incoming: Vec::new() });
        Ok(Negotiating { tls, negotiation: Some(negotiation), counter: Counter::new()?, rung: Box::new([0; 8]) })
    }

    /// Brings whole records to the desk.
    pub(crate) fn feed(&mut self, input: &[u8]) -> Step {
        if self.negotiation.is_none() {
            return Step::Wait(0);
        }
        let mut whole = 0;
        while let Some(length) = record_bytes(&input[whole..]) {
            whole += length;
        }
        if input[whole..].first_chunk::<HEADER_BYTES>().is_some_and(|first| header(first).is_none()) {
            return Step::Broken;
        }
        if whole == 0 {
            return Step::NeedInput;
        }
        let Some(negotiation) = self.negotiation.take() else { return Step::Wait(0) };
        let errand = Errand { tls: self.tls.clone(), negotiation, input: input[..whole].to_vec(), counter: self.counter.clone() };
        if self.tls.desk.bring(errand) { Step::Wait(whole) } else { Step::Broken }
    }

    /// The bell's descriptor, and where the kernel is to write its eight bytes.
    pub(crate) fn bell(&mut self) -> (RawFd, &mut [u8; 8]) {
        (self.counter.bell().as_raw_fd(), &mut self.rung)
    }

    /// The bell has rung: what is to be sent, and what next.
    pub(crate) fn back(&mut self) -> (Vec<u8>, Step) {
        let Some(Ready { mut negotiation, output, outcome }) = self.counter.take() else { return (Vec::new(), Step::Wait(0)) };
        let behind = std::mem::take(&mut negotiation.incoming);
        let step = match outcome {
            Outcome::Agreed(agreed) => Step::Agreed(agreed, behind),
            Outcome::Failed => Step::Failed,
            Outcome::More => {
                negotiation.incoming = behind;
                Step::NeedInput
            }
        };
        self.negotiation = Some(negotiation);
        (output, step)
    }
}
