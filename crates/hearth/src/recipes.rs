//! How a volume or disk is given to a virtual machine: the exact lines for libvirt, QEMU and Proxmox; and to
//! `/etc/fstab`.
//!
//! A disk over vhost-user is preferred to a block device, since it costs least, and a block device to
//! NBD: users of either wait while the daemon restarts, also after a crash.

use crate::cli::Machine;
use crate::failure::Failure;
use api::words::Export;
use api::{DiskView, VolumeView};
use std::collections::BTreeMap;
use uuid::Uuid;

/// For whom the lines are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum For {
    /// `<disk>` of a domain.
    Libvirt,
    /// Options of the command line.
    Qemu,
    /// A command, or a line of the machine's configuration.
    Proxmox,
    /// A line of the table of file systems.
    Fstab,
}

impl For {
    /// For whom lines were asked for.
    pub fn asked(machine: &Machine) -> Option<For> {
        let Machine { libvirt, qemu, proxmox, fstab } = machine;
        let all = [(libvirt, For::Libvirt), (qemu, For::Qemu), (proxmox, For::Proxmox), (fstab, For::Fstab)];
        all.into_iter().find_map(|(asked, machine)| asked.then_some(machine))
    }
}

/// What the lines say of a volume or a disk.
pub struct Offered<'a> {
    /// "volume" or "disk".
    kind: &'static str,
    name: &'a str,
    uuid: Uuid,
    exports: &'a BTreeMap<String, Option<String>>,
    stable_path: Option<&'a str>,
    sector_bytes: Option<u32>,
    read_only: bool,
}

impl<'a> From<&'a VolumeView> for Offered<'a> {
    fn from(volume: &'a VolumeView) -> Offered<'a> {
        Offered {
            kind: "volume",
            name: &volume.name,
            uuid: volume.uuid,
            exports: &volume.exports,
            stable_path: volume.stable_path.as_deref(),
            sector_bytes: volume.sector_bytes,
            read_only: volume.options.read_only,
        }
    }
}

impl<'a> From<&'a DiskView> for Offered<'a> {
    fn from(disk: &'a DiskView) -> Offered<'a> {
        Offered {
            kind: "disk",
            name: &disk.name,
            uuid: disk.uuid,
            exports: &disk.exports,
            stable_path: disk.stable_path.as_deref(),
            sector_bytes: disk.sector_bytes,
            read_only: false,
        }
    }
}

/// How long QEMU tries to connect again before a request fails, in seconds: longer than a daemon takes
/// that recovers a large pool.
const RECONNECT_SECONDS: u32 = 60;
/// Where libvirt looks for certificates for NBD, unless `qemu.conf` says otherwise: the place for the files of
/// `hearth pki issue NAME` on the host of the machine.
const QEMU_CERTIFICATES: &str = "/etc/pki/libvirt-nbd";
/// QEMU cuts the serial number of a virtio disk there.
const SERIAL_BYTES_MAX: usize = 20;

/// Where a volume is offered, as a machine sees it.
enum Place<'a> {
    VhostUser(&'a str),
    Device(&'a str),
    Unix { socket: String, export: String },
    Tcp { host: String, port: u16, export: String, tls: bool },
}

/// The lines.
///
/// # Errors
/// If the volume is not offered, or not in a way that the machine can use.
pub fn recipe(volume: &Offered<'_>, machine: For) -> Result<String, Failure> {
    if machine == For::Fstab {
        return fstab(volume);
    }
    let place = place(volume)?;
    Ok(match machine {
        For::Libvirt => libvirt(volume, &place),
        For::Qemu => qemu(volume, &place),
        For::Proxmox => proxmox(volume, &place),
        For::Fstab => unreachable!("answered above"),
    })
}

fn place<'a>(volume: &Offered<'a>) -> Result<Place<'a>, Failure> {
    let offered = |start: &str| {
        let mut found = volume.exports.iter().filter(|(how, _)| how.starts_with(start));
        found.find_map(|(_, place)| place.as_deref())
    };
    if let Some(socket) = offered("vhost-user") {
        return Ok(Place::VhostUser(socket));
    }
    if let Some(device) = device(volume) {
        return Ok(Place::Device(device));
    }
    let (kind, make) = (volume.kind, if volume.kind == "disk" { "create" } else { "add" });
    let none = || {
        Failure::failed(
            format!("{kind} \"{}\" is not offered now", volume.name),
            &format!("see `hearth {kind} list` for the reason; a {kind} gets its exports with `hearth {kind} {make} --export`"),
        )
    };
    let uri = offered("nbd").ok_or_else(none)?;
    of_uri(uri).ok_or_else(|| Failure::failed(format!("{uri} is not understood"), "use its parts by hand"))
}

/// The volume's block device, by the name that stays if it has one.
fn device<'a>(volume: &Offered<'a>) -> Option<&'a str> {
    let is_device = |word: &str| Export::parse(word).is_ok_and(|export| export.is_device());
    let device = volume.exports.iter().find(|(word, _)| is_device(word)).and_then(|(_, place)| place.as_deref())?;
    Some(volume.stable_path.unwrap_or(device))
}

/// What systemd mounts when the daemon has the device. `nofail`, since the daemon itself starts after
/// the local file systems; not required by the daemon's unit, which would unmount it for a restart.
fn fstab(volume: &Offered<'_>) -> Result<String, Failure> {
    let Some(device) = volume.stable_path else {
        let kind = volume.kind;
        return Err(Failure::failed(
            format!("{kind} \"{}\" has no block device with a name that stays", volume.name),
            &format!("make it with `--export block`, and see `hearth {kind} show` for why the name is missing"),
        ));
    };
    let read_only = if volume.read_only { "ro," } else { "" };
    let options = format!("{read_only}nofail,x-systemd.after=hearth.service,x-systemd.device-timeout=5min");
    Ok(format!("{device} /srv/{} auto {options} 0 2\n", volume.name))
}

/// The parts of an NBD URI as the daemon writes it.
fn of_uri(uri: &str) -> Option<Place<'static>> {
    if let Some(rest) = uri.strip_prefix("nbd+unix:///") {
        let (export, socket) = rest.split_once("?socket=")?;
        return Some(Place::Unix { socket: unescape(socket)?, export: unescape(export)? });
    }
    let (scheme, rest) = uri.split_once("://")?;
    let tls = scheme == "nbds";
    let (address, export) = rest.split_once('/').filter(|_| tls || scheme == "nbd")?;
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Some(Place::Tcp { host, port: port.parse().ok()?, export: unescape(export)?, tls })
}

fn unescape(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        match (first, tail) {
            (b'%', [a, b, after @ ..]) => {
                let digits = [*a, *b];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
                rest = after;
            }
            _ => bytes.push(first),
        }
    }
    String::from_utf8(bytes).ok()
}

/// The same on every host and after every restart, so that guests find the disk by it.
fn serial(volume: &Offered<'_>) -> String {
    let digits = volume.uuid.to_string().replace('-', "");
    digits[..SERIAL_BYTES_MAX.min(digits.len())].to_owned()
}

fn sector_bytes(volume: &Offered<'_>) -> u32 {
    volume.sector_bytes.unwrap_or(512)
}

/// What the guest may take for written as a whole: what the block device says, and of what has none a sector.
fn physical_bytes(volume: &Offered<'_>, place: &Place<'_>) -> u32 {
    let told = match place {
        Place::Device(device) => std::fs::canonicalize(device).ok().and_then(|device| {
            let queue = std::path::Path::new("/sys/class/block").join(device.file_name()?).join("queue/physical_block_size");
            std::fs::read_to_string(queue).ok()?.trim().parse().ok()
        }),
        Place::VhostUser(_) | Place::Unix { .. } | Place::Tcp { .. } => None,
    };
    told.unwrap_or(0).max(sector_bytes(volume))
}

fn libvirt(volume: &Offered<'_>, place: &Place<'_>) -> String {
    let (kind, cache, source) = match place {
        Place::VhostUser(socket) => return vhost_user_libvirt(socket),
        Place::Device(device) => ("block", "cache='none' io='native'", format!("<source dev='{}'/>", xml(device))),
        Place::Unix { socket, export } => {
            let host = format!("<host transport='unix' socket='{}'/>", xml(socket));
            ("network", "cache='none'", nbd_source(export, "", &host))
        }
        Place::Tcp { host, port, export, tls } => {
            let host = format!("<host name='{}' port='{port}'/>", xml(host));
            ("network", "cache='none'", nbd_source(export, if *tls { " tls='yes'" } else { "" }, &host))
        }
    };
    let read_only = if volume.read_only { "  <readonly/>\n" } else { "" };
    format!(
        "<disk type='{kind}' device='disk'>\n  <driver name='qemu' type='raw' {cache} discard='unmap'/>\n  {source}\n  \
         <target dev='vdb' bus='virtio'/>\n  <serial>{}</serial>\n  \
         <blockio logical_block_size='{}' physical_block_size='{}'/>\n{read_only}</disk>\n",
        serial(volume),
        sector_bytes(volume),
        physical_bytes(volume, place),
    )
}

/// Size, serial number and sector sizes come from the device itself.
fn vhost_user_libvirt(socket: &str) -> String {
    format!(
        "<!-- The domain needs: <memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking> -->\n\
         <disk type='vhostuser' device='disk'>\n  <driver name='qemu' type='raw'/>\n  \
         <source type='unix' path='{}'>\n    <reconnect enabled='yes' timeout='1'/>\n  </source>\n  \
         <target dev='vdb' bus='virtio'/>\n</disk>\n",
        xml(socket)
    )
}

/// The options of a disk over vhost-user: the socket, and the disk.
fn vhost_user_options(socket: &str) -> [String; 2] {
    let node = "hearth0";
    [format!("socket,id={node},path={},reconnect=1", comma(socket)), format!("vhost-user-blk-pci,chardev={node}")]
}

fn nbd_source(export: &str, tls: &str, host: &str) -> String {
    let (export, delay) = (xml(export), RECONNECT_SECONDS);
    format!("<source protocol='nbd' name='{export}'{tls}>\n    {host}\n    <reconnect delay='{delay}'/>\n  </source>")
}

fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&apos;").replace('"', "&quot;")
}

/// The two options: what is behind the disk, and the disk.
fn qemu_options(volume: &Offered<'_>, place: &Place<'_>) -> [String; 2] {
    let node = "hearth0";
    let behind = match place {
        Place::VhostUser(socket) => return vhost_user_options(socket),
        Place::Device(device) => {
            format!("driver=host_device,filename={},cache.direct=on,aio=native", comma(device))
        }
        Place::Unix { socket, export } => format!(
            "driver=nbd,server.type=unix,server.path={},export={},reconnect-delay={RECONNECT_SECONDS}",
            comma(socket),
            comma(export)
        ),
        Place::Tcp { host, port, export, tls } => format!(
            "driver=nbd,server.type=inet,server.host={host},server.port={port},export={},{}reconnect-delay={RECONNECT_SECONDS}",
            comma(export),
            if *tls { "tls-creds=hearth-tls," } else { "" }
        ),
    };
    let read_only = if volume.read_only { "on" } else { "off" };
    let disk = format!(
        "virtio-blk-pci,drive={node},serial={},logical_block_size={},physical_block_size={}",
        serial(volume),
        sector_bytes(volume),
        physical_bytes(volume, place)
    );
    [format!("{behind},node-name={node},discard=unmap,read-only={read_only}"), disk]
}

/// With TLS: the option that names the guest host's certificates.
fn qemu_credentials(place: &Place<'_>) -> Option<String> {
    let secured = matches!(place, Place::Tcp { tls: true, .. });
    secured.then(|| format!("-object tls-creds-x509,id=hearth-tls,endpoint=client,dir={QEMU_CERTIFICATES}"))
}

/// In an option of QEMU's a comma stands twice.
fn comma(text: &str) -> String {
    text.replace(',', ",,")
}

fn qemu(volume: &Offered<'_>, place: &Place<'_>) -> String {
    let [behind, disk] = qemu_options(volume, place);
    let credentials = qemu_credentials(place).map(|option| format!("{option} \\\n")).unwrap_or_default();
    format!("{credentials}{} {} \\\n-device {disk}\n", option_of(place), quoted(&behind))
}

/// What says what is behind the disk.
fn option_of(place: &Place<'_>) -> &'static str {
    if matches!(place, Place::VhostUser(_)) { "-chardev" } else { "-blockdev" }
}

fn proxmox(volume: &Offered<'_>, place: &Place<'_>) -> String {
    if let Place::Device(device) = place {
        let read_only = if volume.read_only { ",ro=1" } else { "" };
        let disk = format!("{device},cache=none,aio=native,discard=on,backup=0,serial={}{read_only}", serial(volume));
        return format!("qm set VMID --virtio1 {}\n", quoted(&disk));
    }
    let [behind, disk] = qemu_options(volume, place);
    // Only memory that is shared can be used by another process; its size is the machine's.
    let memory = "-object memory-backend-memfd,id=hearth-memory,share=on,size=MEMORY -machine memory-backend=hearth-memory ";
    let memory = if matches!(place, Place::VhostUser(_)) { memory } else { "" };
    let credentials = qemu_credentials(place).map(|option| format!("{option} ")).unwrap_or_default();
    format!("args: {memory}{credentials}{} {} -device {disk}\n", option_of(place), quoted(&behind))
}

/// For a shell, if it needs that.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/.,=:_-+".contains(c);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Health;
    use api::options::Options;

    fn volume(exports: &[(&str, &str)], stable: Option<&str>) -> VolumeView {
        VolumeView {
            name: "db".into(),
            uuid: serde_json::from_str("\"01234567-89ab-cdef-0123-456789abcdef\"").expect("a UUID"),
            health: Health::Running,
            problem: None,
            remedy: None,
            pool: "fast".into(),
            backing: "/dev/sdb".into(),
            size_bytes: 1 << 30,
            backing_size_bytes: None,
            sector_bytes: Some(4096),
            options: Options::default(),
            exports: exports.iter().map(|(how, place)| ((*how).into(), Some((*place).into()))).collect(),
            on_restart: Default::default(),
            export_notes: Default::default(),
            stable_path: stable.map(Into::into),
            shares: Vec::new(),
            attached_to: None,
            cached_bytes: None,
            dirty_bytes: None,
            job: None,
        }
    }

    fn offered(volume: &VolumeView) -> Offered<'_> {
        Offered::from(volume)
    }

    #[test]
    fn a_disk_gets_the_same_lines() {
        let of_volume = volume(&[("block", "/dev/ublkb0"), ("nbd", "nbd+unix:///db?socket=/run/n.sock")], Some("/dev/hearth/db"));
        let mut disk = DiskView {
            name: of_volume.name.clone(),
            uuid: of_volume.uuid,
            health: Health::Running,
            problem: None,
            remedy: None,
            pool: "fast".into(),
            ssd: "/dev/nvme0n1".into(),
            pieces: Vec::new(),
            size_bytes: 1 << 30,
            size_reach: Vec::new(),
            checksummed: false,
            sector_bytes: Some(4096),
            exports: of_volume.exports.clone(),
            on_restart: Default::default(),
            export_notes: Default::default(),
            stable_path: of_volume.stable_path.clone(),
            shares: Vec::new(),
        };
        for machine in [For::Libvirt, For::Qemu, For::Proxmox, For::Fstab] {
            let lines = recipe(&Offered::from(&disk), machine).expect("it is offered");
            assert_eq!(lines, recipe(&offered(&of_volume), machine).expect("it is offered"));
        }
        (disk.exports, disk.stable_path) = (BTreeMap::new(), None);
        let told = recipe(&Offered::from(&disk), For::Qemu).expect_err("it is not offered");
        assert!(told.message.starts_with("disk \"db\" is not offered now"), "{}", told.message);
    }

    /// A guest that writes more than a sector in one go must not believe that a power cut leaves all of it or nothing, where nobody says so.
    #[test]
    fn a_guest_is_told_of_physical_blocks_what_holds() {
        let mut over_nbd = volume(&[("nbd", "nbd+unix:///db?socket=/run/n.sock")], None);
        over_nbd.sector_bytes = Some(512);
        let xml = recipe(&offered(&over_nbd), For::Libvirt).expect("it is offered");
        assert!(xml.contains("logical_block_size='512' physical_block_size='512'"), "{xml}");
        let qemu = recipe(&offered(&over_nbd), For::Qemu).expect("it is offered");
        assert!(qemu.contains("logical_block_size=512,physical_block_size=512"), "{qemu}");
    }

    #[test]
    fn a_block_device_is_preferred_and_named_by_what_stays() {
        let both = volume(&[("loop", "/dev/loop3"), ("nbd", "nbd+unix:///db?socket=/run/n.sock")], Some("/dev/hearth/db"));
        let xml = recipe(&offered(&both), For::Libvirt).expect("it is offered");
        assert!(xml.contains("<source dev='/dev/hearth/db'/>") && xml.contains("logical_block_size='4096'"), "{xml}");
        assert!(xml.contains("<serial>0123456789abcdef0123</serial>"), "{xml}");
        let qm = recipe(&offered(&both), For::Proxmox).expect("it is offered");
        assert!(qm.starts_with("qm set VMID --virtio1 /dev/hearth/db,cache=none,"), "{qm}");
        let without = volume(&[("block", "/dev/loop3")], None);
        assert!(recipe(&offered(&without), For::Qemu).expect("it is offered").contains("filename=/dev/loop3"));
    }

    #[test]
    fn a_disk_over_vhost_user_is_preferred_to_all() {
        let all = volume(&[("loop", "/dev/loop3"), ("vhost-user", "/run/hearth/vhost-user/db.sock")], Some("/dev/hearth/db"));
        let xml = recipe(&offered(&all), For::Libvirt).expect("it is offered");
        assert!(xml.contains("<source type='unix' path='/run/hearth/vhost-user/db.sock'>") && xml.contains("<reconnect"), "{xml}");
        let line = recipe(&offered(&all), For::Qemu).expect("it is offered");
        assert!(line.starts_with("-chardev socket,id=hearth0,path=/run/hearth/vhost-user/db.sock,reconnect=1 "), "{line}");
        let args = recipe(&offered(&all), For::Proxmox).expect("it is offered");
        assert!(args.contains("size=MEMORY") && args.contains("-device vhost-user-blk-pci,chardev=hearth0"), "{args}");
    }

    #[test]
    fn what_is_unusual_in_names_is_quoted_as_each_program_wants_it() {
        let odd = volume(&[("nbd", "nbd+unix:///a%2Cb%26c?socket=/run/it%27s%2Chere")], None);
        let xml = recipe(&offered(&odd), For::Libvirt).expect("it is offered");
        assert!(xml.contains("name='a,b&amp;c'") && xml.contains("socket='/run/it&apos;s,here'"), "{xml}");
        let line = recipe(&offered(&odd), For::Qemu).expect("it is offered");
        assert!(line.contains(r"server.path=/run/it'\''s,,here,export=a,,b&c"), "{line}");
        let tcp = volume(&[("nbd:[::1]:10809", "nbd://[::1]:10809/db")], None);
        assert!(recipe(&offered(&tcp), For::Qemu).expect("it is offered").contains("server.host=::1,server.port=10809"));
        assert!(recipe(&offered(&tcp), For::Proxmox).expect("it is offered").starts_with("args: -blockdev driver=nbd"));
        let tls = volume(&[("nbds:0.0.0.0:10809", "nbds://store:10809/db")], None);
        let line = recipe(&offered(&tls), For::Qemu).expect("it is offered");
        assert!(line.starts_with("-object tls-creds-x509,id=hearth-tls,endpoint=client,dir=/etc/pki/libvirt-nbd \\\n-blockdev"), "{line}");
        assert!(line.contains("server.host=store,server.port=10809,export=db,tls-creds=hearth-tls,reconnect-delay="), "{line}");
        let xml = recipe(&offered(&tls), For::Libvirt).expect("it is offered");
        assert!(xml.contains("<source protocol='nbd' name='db' tls='yes'>") && xml.contains("<host name='store' port='10809'/>"), "{xml}");
    }

    #[test]
    fn a_mount_at_boot_names_what_stays() {
        let line = recipe(&offered(&volume(&[("block", "/dev/ublkb0")], Some("/dev/hearth/db"))), For::Fstab).expect("it has a name");
        assert!(line.starts_with("/dev/hearth/db /srv/db auto nofail,x-systemd.after=hearth.service,"), "{line}");
        assert!(recipe(&offered(&volume(&[("block", "/dev/ublkb0")], None)), For::Fstab).is_err());
    }

    #[test]
    fn a_volume_without_exports_says_what_to_do() {
        let told = recipe(&offered(&volume(&[], None)), For::Qemu).expect_err("not offered");
        assert!(told.message.contains("is not offered now"), "{}", told.message);
    }
}
