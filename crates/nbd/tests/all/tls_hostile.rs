//! Clients that lie, stall or shout in TLS: the server lives, memory is bounded, and other clients see nothing.

use crate::common;
use crate::common::Neighbour;
use crate::common::random::Random;
use crate::common::secured::{Client, Secured, at_starttls, config};
use nbd::Limits;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ConnectionTrafficSecrets};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

fn cases(usual: u64) -> u64 {
    std::env::var("NBD_FUZZ_CASES").ok().map_or(usual, |text| text.parse().expect("NBD_FUZZ_CASES is a number"))
}

/// What panics on the thread that shakes hands is caught there, so that it costs its client alone; here it is a failure.
fn watch_the_desk() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        if std::thread::current().name() == Some("nbd-tls") {
            std::process::abort();
        }
    }));
}

/// Whether the server closes: reads until the end of the stream, or a reset.
fn is_closed(stream: &mut TcpStream) -> bool {
    let mut sink = [0; 4096];
    loop {
        match stream.read(&mut sink) {
            Ok(0) => return true,
            Ok(_) => (),
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// Changes bytes, cuts, doubles: as in the tests of the plain handshake.
fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(3) {
        if bytes.is_empty() {
            return;
        }
        // Heads of records and of messages are where lengths are.
        let within = if random.below(2) == 0 { bytes.len().min(48) } else { bytes.len() };
        let at = random.below(within as u64) as usize;
        match random.below(4) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes.truncate(at),
            _ => {
                let copied = bytes[at..].to_vec();
                bytes.extend_from_slice(&copied);
            }
        }
    }
}

#[test]
fn noise_in_place_of_tls_harms_nobody() {
    watch_the_desk();
    let secured = Secured::new();
    let neighbour = Neighbour::start(&secured.fixture);
    let guest = secured.client("guest7");
    for seed in 0..cases(150) {
        let random = &mut Random(seed);
        let mut stream = at_starttls(secured.address()).unwrap();
        let mut bytes: Vec<u8> = (0..random.below(600)).map(|_| random.next() as u8).collect();
        // Some look like records, of any kind and length.
        if random.below(3) > 0 {
            let length = (*random.pick(&[0_u16, 1, 4, 40, 512, 16384, 16640, 16641, 65535])).to_be_bytes();
            let kind = *random.pick(&[20, 21, 22, 22, 22, 23, 24]);
            bytes.splice(0..0, [kind, 3, 1 + 2 * random.below(2) as u8, length[0], length[1]]);
        }
        let _closed = stream.write_all(&bytes).is_err();
        stream.shutdown(std::net::Shutdown::Write).ok();
        assert!(is_closed(&mut stream), "seed {seed}");
    }
    secured.connect(Some(&guest)).unwrap().go("disk").unwrap();
    common::wait_until("all are gone", || secured.server().counters().connections == 0);
    neighbour.finish();
}

#[test]
fn mutated_handshakes_harm_nobody() {
    watch_the_desk();
    let secured = Secured::new();
    let neighbour = Neighbour::start(&secured.fixture);
    let guest = secured.client("guest7");
    let settings = Arc::new(config(&guest, Some(&guest)));
    let mut let_in = 0;
    for seed in 0..cases(150) {
        let random = &mut Random(seed);
        let mut stream = at_starttls(secured.address()).unwrap();
        let mut connection = ClientConnection::new(settings.clone(), ServerName::try_from("localhost").unwrap()).unwrap();
        // The first flight or the second is changed.
        let victim = random.below(2);
        for flight in 0..2 {
            let mut bytes = Vec::new();
            while connection.wants_write() {
                connection.write_tls(&mut bytes).unwrap();
            }
            if flight == victim {
                mutate(random, &mut bytes);
            }
            if stream.write_all(&bytes).is_err() {
                break;
            }
            if flight == victim {
                stream.shutdown(std::net::Shutdown::Write).ok();
                break;
            }
            while connection.is_handshaking() && !connection.wants_write() && connection.read_tls(&mut stream).is_ok_and(|read| read > 0) {
                if connection.process_new_packets().is_err() {
                    break;
                }
            }
        }
        assert!(is_closed(&mut stream), "seed {seed}");
        let_in += u64::from(!connection.is_handshaking());
    }
    assert!(let_in > 10, "the second flight is reached");
    secured.connect(Some(&guest)).unwrap().go("disk").unwrap();
    common::wait_until("all are gone", || secured.server().counters().connections == 0);
    neighbour.finish();
}

#[test]
fn mutated_records_end_the_connection_and_nothing_else() {
    let secured = Secured::new();
    let neighbour = Neighbour::start(&secured.fixture);
    let guest = secured.client("guest7");
    for seed in 0..cases(150) {
        let random = &mut Random(seed);
        // A place of its own: a write that was whole may still be under way when its connection has closed.
        let at = 4096 + 512 * seed;
        let mut client = secured.connect(Some(&guest)).unwrap();
        client.go("disk").unwrap();
        client.write(0, &random.bytes(4096)).unwrap();
        // A request as it should be, changed on its way: no byte of it may be believed.
        client.stream.conn.writer().write_all(&common::client::header(common::client::WRITE, 0, 9, at, 512)).unwrap();
        client.stream.conn.writer().write_all(&random.bytes(512)).unwrap();
        let mut bytes = Vec::new();
        while client.stream.conn.wants_write() {
            client.stream.conn.write_tls(&mut bytes).unwrap();
        }
        let original = bytes.clone();
        mutate(random, &mut bytes);
        let is_whole = bytes.starts_with(&original);
        let stream = &mut client.stream.sock;
        let _closed = stream.write_all(&bytes).is_err();
        stream.shutdown(std::net::Shutdown::Write).ok();
        assert!(is_closed(stream), "seed {seed}");
        if !is_whole {
            let mut after = secured.connect(Some(&guest)).unwrap();
            after.go("disk").unwrap();
            assert_eq!(after.read(at, 512).unwrap(), vec![0; 512], "seed {seed}");
        }
    }
    common::wait_until("all are gone", || secured.server().counters().connections == 0);
    neighbour.finish();
}

/// Seals records as a client that has turned against the server: it has good keys, and says what no client says.
struct Turned {
    stream: TcpStream,
    key: ring::aead::LessSafeKey,
    iv: Vec<u8>,
    sequence: u64,
}

impl Turned {
    fn new(secured: &Secured, certificates: &std::path::Path) -> Turned {
        let mut settings = config(certificates, Some(certificates));
        settings.enable_secret_extraction = true;
        let mut client = Client::connect(secured.address(), settings).unwrap();
        client.go("disk").unwrap();
        let (connection, stream) = (client.stream.conn, client.stream.sock);
        #[allow(deprecated, reason = "no new keys are needed here")]
        let (sequence, secrets) = connection.dangerous_extract_secrets().unwrap().tx;
        let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else { panic!("AES-128-GCM comes first") };
        let key = ring::aead::LessSafeKey::new(ring::aead::UnboundKey::new(&ring::aead::AES_128_GCM, key.as_ref()).unwrap());
        Turned { stream, key, iv: iv.as_ref().to_vec(), sequence }
    }

    fn say(&mut self, kind: u8, content: &[u8], padding: usize) {
        let mut nonce: [u8; 12] = self.iv.clone().try_into().unwrap();
        nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()).for_each(|(byte, number)| *byte ^= number);
        self.sequence += 1;
        let mut body = content.to_vec();
        body.push(kind);
        body.resize(body.len() + padding, 0);
        let [high, low] = ((body.len() + 16) as u16).to_be_bytes();
        let header = [23, 3, 3, high, low];
        let nonce = ring::aead::Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce, ring::aead::Aad::from(&header), &mut body).unwrap();
        let _closed = self.stream.write_all(&[&header[..], &body].concat()).is_err();
    }
}

#[test]
fn who_has_good_keys_and_bad_manners_is_disconnected_and_nothing_else() {
    let secured = Secured::new();
    let neighbour = Neighbour::start(&secured.fixture);
    let guest = secured.client("guest7");
    let request = common::client::header(common::client::READ, 0, 1, 0, 512);
    // Padded and empty records are none of that: TLS allows them.
    let mut good = Turned::new(&secured, &guest);
    good.say(23, &[], 0);
    good.say(23, &request[..3], 100);
    good.say(23, &request[3..], 16_000);
    let mut head = [0; 5];
    good.stream.read_exact(&mut head).unwrap();
    assert_eq!(head[..3], [23, 3, 3], "an answer");
    let bad: [(u8, &[u8], usize); 11] = [
        (0, &[], 0),
        (0, &[], 1000),
        (20, &[1], 0),
        (21, &[2, 40], 0),
        (21, &[], 0),
        (22, &[24, 0, 0, 1, 2], 0),
        (22, &[24, 0, 0, 1], 0),
        (22, &[24, 0, 0, 1, 0, 24, 0, 0, 1, 0], 0),
        (22, &[1, 0, 0, 0], 0),
        (24, b"heartbeat", 0),
        (23, &[7; 16385], 0),
    ];
    for (kind, content, padding) in bad {
        let mut turned = Turned::new(&secured, &guest);
        turned.say(kind, content, padding);
        assert!(is_closed(&mut turned.stream), "{kind}, {} bytes", content.len());
    }
    // A key update, and then a record with the old keys.
    let mut turned = Turned::new(&secured, &guest);
    turned.say(22, &[24, 0, 0, 1, 1], 0);
    turned.say(23, &request, 0);
    assert!(is_closed(&mut turned.stream));
    drop(good);
    common::wait_until("all are gone", || secured.server().counters().connections == 0);
    neighbour.finish();
}

#[test]
fn unfinished_handshakes_keep_nobody_out() {
    let secured = Secured::with_limits(Limits { handshakes_max: 8, ..Limits::default() });
    let guest = secured.client("guest7");
    let settings = Arc::new(config(&guest, Some(&guest)));
    let mut hello = Vec::new();
    let mut connection = ClientConnection::new(settings, ServerName::try_from("localhost").unwrap()).unwrap();
    connection.write_tls(&mut hello).unwrap();
    let mut stalled = Vec::new();
    for number in 0..40 {
        let Ok(mut stream) = at_starttls(secured.address()) else { continue };
        // Some say nothing, some half of a hello, some all of it and nothing more.
        let said = [0, hello.len() / 2, hello.len()][number % 3];
        let _gave_way = stream.write_all(&hello[..said]).is_err();
        stalled.push(stream);
    }
    let mut client = secured.connect(Some(&guest)).unwrap();
    client.go("disk").unwrap();
    client.read(0, 4096).unwrap();
    let counters = secured.server().counters();
    assert!(counters.gave_way >= 20, "{counters:?}");
    assert!(counters.connections <= 8 + 1 + 1, "{counters:?}");
}
