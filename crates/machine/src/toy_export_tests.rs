//! A new export, as its author would write it: one exporter and one way. Clients connect to a Unix socket, send the number of a block, and
//! get the block.

use super::{Machine, MachineOptions};
use api::options::Options;
use api::words::Export;
use datapath::{Absence, Exports, Volumes, Withdrawal};
use engine::api::{Origin, Reply, Request};
use export::slots::locked;
use export::ways::{NBD, Takes, VHOST_USER};
use export::{BlockBelow, ExportError, Exporter, Exporters, Offer, Owner, Place, Site, Users, Volume, Way};
use records::state::{VolumeRecord, samples};
use runtime::{ANY_VOLUME, Context, Endpoint, VolumeRef};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

static BLOCKS: Way = Way {
    word: "blocks",
    takes: Takes::Nothing,
    is_device: false,
    has_tls: false,
    usage: "blocks",
    title: "Single blocks",
    creates: "a Unix socket that answers block numbers with blocks",
    growth: Some("clients ask for what they want"),
};

/// One volume's socket.
#[derive(Default)]
struct Served {
    clients: AtomicUsize,
    is_over: AtomicBool,
}

struct BlocksExporter {
    site: Arc<Site>,
    served: Mutex<BTreeMap<Owner, Arc<Served>>>,
}

impl BlocksExporter {
    fn socket(&self, volume: &Volume<'_>) -> std::path::PathBuf {
        self.site.directory.join(format!("{}.blocks", volume.owner))
    }
}

/// Answers one client until it hangs up.
fn serve(site: &Site, volume: &VolumeRef, mut client: UnixStream) {
    let mut number = [0; 8];
    while client.read_exact(&mut number).is_ok() {
        let (done, answer) = channel();
        let reader = BlockReader { volume: volume.clone(), block: u64::from_le_bytes(number), done };
        site.runtime.add_endpoint(Box::new(reader));
        let Ok(reply) = answer.recv() else { return };
        let sent = reply.pages.iter().try_for_each(|page| client.write_all(&page[..]));
        if reply.result.is_err() || sent.is_err() {
            return;
        }
    }
}

struct BlockReader {
    volume: VolumeRef,
    block: u64,
    done: Sender<Reply>,
}

impl Endpoint for BlockReader {
    fn start(&mut self, cx: &mut Context<'_>) {
        let request = Request::read(0, ANY_VOLUME, self.block * 8, 8, Origin::Client);
        drop(cx.submit(&self.volume, request));
    }

    fn ring(&mut self, _cx: &mut Context<'_>, _token: u32, _result: i32, _flags: u32) {}

    fn reply(&mut self, cx: &mut Context<'_>, reply: Reply) {
        drop(self.done.send(reply));
        cx.close();
    }

    fn volume_available(&mut self, cx: &mut Context<'_>) {
        self.start(cx);
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        cx.close();
    }
}

impl Exporter for BlocksExporter {
    fn ways(&self) -> &'static [&'static Way] {
        static WAYS: [&Way; 1] = [&BLOCKS];
        &WAYS
    }

    fn check(&self, _export: Export) -> Result<(), ExportError> {
        Ok(())
    }

    fn offer(&self, volume: &Volume<'_>, reference: &VolumeRef, _export: Export) -> Result<Offer, ExportError> {
        let directory = self.site.directory.clone();
        std::fs::create_dir_all(&directory).map_err(|source| ExportError::Directory { path: directory, source })?;
        let path = self.socket(volume);
        let listener = UnixListener::bind(&path).map_err(|error| ExportError::failed(&error, "remove the socket"))?;
        let (site, reference, served) = (self.site.clone(), reference.clone(), Arc::new(Served::default()));
        locked(&self.served).insert(volume.owner, served.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok).take_while(|_| !served.is_over.load(Ordering::Acquire)) {
                served.clients.fetch_add(1, Ordering::AcqRel);
                serve(&site, &reference, client);
                served.clients.fetch_sub(1, Ordering::AcqRel);
            }
        });
        Ok(Offer { place: path.display().to_string(), ..Offer::default() })
    }

    fn withdraw(&self, volume: &Volume<'_>, export: Export, how: Withdrawal) -> Result<Option<String>, ExportError> {
        if let (Withdrawal::IfUnused, Users::Some(user)) = (how, self.users(volume, export)) {
            return Err(ExportError::in_use(&self.socket(volume), &user));
        }
        if let Some(served) = locked(&self.served).remove(&volume.owner) {
            served.is_over.store(true, Ordering::Release);
            drop(UnixStream::connect(self.socket(volume)));
            drop(std::fs::remove_file(self.socket(volume)));
        }
        Ok(None)
    }

    fn users(&self, volume: &Volume<'_>, _export: Export) -> Users {
        let is_used = locked(&self.served).get(&volume.owner).is_some_and(|served| served.clients.load(Ordering::Acquire) > 0);
        is_used.then(|| "a client".to_owned()).into()
    }

    fn outlives(&self, _volume: &Volume<'_>, _export: Export, _absence: Absence) -> bool {
        false
    }

    /// A client that makes a block device of a volume calls it `blocks-` and the volume's name.
    fn volume_on(&self, device: &BlockBelow, volumes: &[Volume<'_>]) -> Option<String> {
        let name = device.name.strip_prefix("blocks-")?;
        volumes.iter().any(|volume| volume.name == name).then(|| name.to_owned())
    }

    fn grow(&self, _owner: Owner, _size_bytes: u64) -> Vec<String> {
        Vec::new()
    }

    fn set_names(&self, _volume: &Volume<'_>) {}

    fn expect(&self, _volumes: &[Volume<'_>]) {}

    fn close_overdue(&self, _known: &[Volume<'_>], _busy: &[String]) -> Vec<String> {
        Vec::new()
    }

    fn end_waiting(&self, _volume: &Volume<'_>) {}

    fn detached(&self, _volume: &Volume<'_>) {}

    fn finish(&self) {}

    fn keeps(&self) -> Option<&'static str> {
        None
    }

    fn end_kept(&self, _name: &str, _set: Vec<OwnedFd>) -> bool {
        true
    }
}

/// A volume on a file whose blocks hold their numbers; `None` where the file cannot be opened for direct I/O.
fn machine(place: &std::path::Path) -> Option<(Machine, VolumeRecord)> {
    let backing = place.join("disk");
    let content: Vec<u8> = (0..16_u8).flat_map(|number| [number; 4096]).collect();
    std::fs::write(&backing, content).expect("there is room");
    let (notices, _) = channel();
    let options = MachineOptions {
        reactors: Some(1),
        exporters: |site| {
            let blocks = BlocksExporter { site: site.clone(), served: Mutex::default() };
            Exporters::new(site.clone(), Vec::new(), vec![Arc::new(blocks)])
        },
        ..MachineOptions::private(place, notices)
    };
    let machine = Machine::start(options).map_err(|error| println!("skipped: {error}")).ok()?;
    let mut volume = samples::volume("v", &mut samples::pool("p"));
    (volume.backing, volume.size_bytes, volume.options) = (backing.display().to_string(), 16 * 4096, Options::default());
    machine.attach_bare(&volume).map_err(|error| println!("skipped: {error}")).ok()?;
    Some((machine, volume))
}

#[test]
fn an_export_is_one_exporter_and_one_way() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let Some((machine, volume)) = machine(place.path()) else { return };
    let export = Export::of(&BLOCKS, Place::Default);
    assert_eq!(export.to_string(), "blocks");
    machine.check_export(export).expect("any place will do");
    let offer = machine.export(&volume, &export).expect("the socket is new");
    assert_eq!(machine.export_in_use(&volume, &export), None);
    let mut client = UnixStream::connect(&offer.place).expect("it listens");
    for number in [7_u8, 0, 15] {
        client.write_all(&u64::from(number).to_le_bytes()).expect("it is served");
        let mut block = [0; 4096];
        client.read_exact(&mut block).expect("the block is there");
        assert_eq!(block, [number; 4096]);
    }
    assert_eq!(machine.export_in_use(&volume, &export).as_deref(), Some("a client"));
    assert!(machine.unexport(&volume, &export, Withdrawal::IfUnused).is_err(), "its client would get errors");
    let volume_on =
        |name: &str| machine.volume_on(&BlockBelow { name: name.into(), directory: place.path().into() }, slice::from_ref(&volume));
    assert_eq!(volume_on("blocks-v").as_deref(), Some("v"), "what lies on it waits for this daemon");
    assert_eq!((volume_on("blocks-w"), volume_on("sda")), (None, None));
    drop(client);
    while machine.export_in_use(&volume, &export).is_some() {
        std::thread::yield_now();
    }
    machine.unexport(&volume, &export, Withdrawal::IfUnused).expect("it has no users");
    assert!(UnixStream::connect(&offer.place).is_err(), "it is gone");
    assert!(!machine.outlives(&volume, &export, Absence::DaemonStops));
}

#[test]
fn an_export_that_a_program_does_not_have_is_refused() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let Some((machine, volume)) = machine(place.path()) else { return };
    for way in [&NBD, &VHOST_USER] {
        let refused = machine.export(&volume, &Export::of(way, Place::Default)).expect_err("there is no exporter").to_string();
        assert!(refused.contains(way.word) && refused.contains("does not offer"), "{refused}");
        assert!(machine.export_in_use(&volume, &Export::of(way, Place::Default)).is_some(), "what is not known is not \"not in use\"");
    }
}
