//! A directory that behaves like configfs with LIO and nvmet, as far as this crate relies on it: what
//! belongs into a directory is there when it is made, links keep what they lead to, values are
//! checked, addresses are taken by one at a time. Whole trees can be compared as text.

use crate::tree::{Configfs, Tree};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The model.
pub struct Model {
    root: PathBuf,
    real: Configfs,
    /// Steps that change something, so far.
    pub changes: Cell<u32>,
    /// The change that fails.
    pub fail_at: Cell<Option<u32>>,
    /// Devices that are held by others.
    pub busy: RefCell<BTreeSet<String>>,
    /// Addresses that others listen on.
    pub taken: RefCell<BTreeSet<String>>,
    made: RefCell<BTreeSet<String>>,
    /// What somebody else does just before this path is made, removed, written or linked.
    pub meanwhile: RefCell<Option<Meanwhile>>,
}

/// Where, and what.
pub type Meanwhile = (String, Box<dyn FnOnce(&Model)>);

/// Directories by the pattern of their path, and what is in each at once: names that end with a
/// slash are directories. A star stands for one name.
const KINDS: [(&str, &[&str]); 14] = [
    ("target", &["core/", "core/alua/", "dbroot=/var/target"]),
    ("target/iscsi", &["discovery_auth/", "lio_version=x"]),
    ("target/core/*", &["hba_info=x", "hba_mode=0"]),
    (
        "target/core/*/*",
        &[
            "control=",
            "udev_path=",
            "enable=0",
            "info=x",
            "wwn/",
            "wwn/vpd_unit_serial=T10 VPD Unit Serial Number: ",
            "pr/",
            "pr/res_aptpl_metadata=Ready",
            "attrib/",
            "attrib/emulate_tpu=0",
            "attrib/emulate_tpws=0",
            "attrib/emulate_caw=1",
            "attrib/emulate_pr=1",
            "attrib/emulate_3pc=1",
        ],
    ),
    ("target/iscsi/*", &["fabric_statistics/"]),
    (
        "target/iscsi/*/tpgt_1",
        &[
            "acls/",
            "lun/",
            "np/",
            "enable=0",
            "dynamic_sessions=",
            "auth/",
            "auth/userid=",
            "auth/password=",
            "auth/userid_mutual=",
            "auth/password_mutual=",
            "param/",
            "param/TargetAlias=LIO Target",
            "attrib/",
            "attrib/authentication=0",
            "attrib/generate_node_acls=0",
            "attrib/cache_dynamic_acls=0",
            "attrib/demo_mode_discovery=1",
            "attrib/demo_mode_write_protect=1",
            "attrib/prod_mode_write_protect=0",
        ],
    ),
    ("target/iscsi/*/tpgt_1/lun/*", &["statistics/"]),
    (
        "target/iscsi/*/tpgt_1/acls/*",
        &[
            "auth/",
            "auth/userid=",
            "auth/password=",
            "auth/userid_mutual=",
            "auth/password_mutual=",
            "info=No active iSCSI Session for Initiator Endpoint: x",
        ],
    ),
    ("target/iscsi/*/tpgt_1/acls/*/*", &["write_protect=0"]),
    ("target/iscsi/*/tpgt_1/np/*", &["iser=0"]),
    ("nvmet", &["subsystems/", "hosts/", "ports/"]),
    ("nvmet/subsystems/*", &["allowed_hosts/", "namespaces/", "attr_serial=random", "attr_model=Linux", "attr_allow_any_host=0"]),
    (
        "nvmet/subsystems/*/namespaces/*",
        &["device_path=(null)", "device_uuid=random", "device_nguid=0", "enable=0", "revalidate_size=", "resv_enable=0"],
    ),
    ("nvmet/ports/*", &["addr_trtype=", "addr_adrfam=", "addr_traddr=", "addr_trsvcid=", "subsystems/"]),
];

impl Model {
    /// A machine with both targets loaded, below this empty directory.
    pub fn new(root: &Path) -> Model {
        let model = Model {
            root: root.join("config"),
            real: Configfs::new(root.join("config")),
            changes: Cell::new(0),
            fail_at: Cell::new(None),
            busy: RefCell::default(),
            taken: RefCell::default(),
            made: RefCell::default(),
            meanwhile: RefCell::default(),
        };
        for path in ["", "target", "nvmet"] {
            fs::create_dir(model.root.join(path)).expect("an empty directory");
            model.fill(path);
        }
        model
    }

    /// The whole tree, a line for each thing: `path/`, `path = value`, `path -> path`.
    pub fn snapshot(&self) -> String {
        let mut lines = Vec::new();
        self.walk("", &mut lines);
        lines.sort();
        lines.join("\n") + "\n"
    }

    /// The machine starts anew: configfs is empty.
    pub fn reboot(&self) {
        for path in ["target", "nvmet"] {
            fs::remove_dir_all(self.root.join(path)).expect("it is there");
            fs::create_dir(self.root.join(path)).expect("it is gone");
            self.fill(path);
        }
    }

    /// What somebody else does, without any of the rules.
    pub fn put(&self, path: &str, value: &str) {
        let full = self.root.join(path);
        fs::create_dir_all(full.parent().expect("it is in the tree")).expect("it can be made");
        fs::write(full, value).expect("it can be written");
    }

    fn walk(&self, path: &str, lines: &mut Vec<String>) {
        for name in self.real.list(path).expect("it can be listed") {
            let inner = if path.is_empty() { name } else { format!("{path}/{name}") };
            let full = self.root.join(&inner);
            if self.real.is_link(&inner) {
                let to = fs::read_link(&full).expect("a link");
                lines.push(format!("{inner} -> {}", to.strip_prefix(&self.root).expect("in the tree").display()));
            } else if full.is_dir() {
                lines.push(format!("{inner}/"));
                self.walk(&inner, lines);
            } else {
                lines.push(format!("{inner} = {}", self.real.read(&inner).expect("a file")));
            }
        }
    }

    fn kind(path: &str) -> Option<&'static [&'static str]> {
        let names: Vec<&str> = path.split('/').collect();
        let fits = |pattern: &str| {
            let parts: Vec<&str> = pattern.split('/').collect();
            parts.len() == names.len() && parts.iter().zip(&names).all(|(part, name)| *part == "*" || part == name)
        };
        KINDS.iter().find(|(pattern, _)| fits(pattern)).map(|(_, content)| *content)
    }

    fn fill(&self, path: &str) {
        for entry in Model::kind(path).unwrap_or_default() {
            let inner = self.root.join(path);
            match entry.split_once('=') {
                None => fs::create_dir(inner.join(entry)).expect("new"),
                Some((name, value)) => fs::write(inner.join(name), value).expect("new"),
            }
        }
    }

    fn change(&self, path: &str) -> io::Result<()> {
        let meanwhile = self.meanwhile.borrow_mut().take_if(|(at, _)| at == path);
        if let Some((_, act)) = meanwhile {
            act(self);
        }
        self.changes.set(self.changes.get() + 1);
        if self.fail_at.get() == Some(self.changes.get()) { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
    }

    /// Whether a link leads there, or into it.
    fn is_linked(&self, path: &str) -> bool {
        let to = self.root.join(path);
        self.leads_to(&self.root, &to)
    }

    fn leads_to(&self, directory: &Path, to: &Path) -> bool {
        let entries = fs::read_dir(directory).expect("it can be listed").flatten();
        entries.into_iter().any(|entry| match entry.file_type().expect("it has one") {
            kind if kind.is_symlink() => fs::read_link(entry.path()).is_ok_and(|leads| leads == to),
            kind if kind.is_dir() => self.leads_to(&entry.path(), to),
            _ => false,
        })
    }

    fn parent(path: &str) -> &str {
        path.rsplit_once('/').map_or("", |(parent, _)| parent)
    }
}

fn no(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

const EBUSY: i32 = 16;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const EACCES: i32 = 13;
const ENOTEMPTY: i32 = 39;
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EADDRINUSE: i32 = 98;

impl Tree for Model {
    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        self.real.list(path)
    }

    fn read(&self, path: &str) -> io::Result<String> {
        if path.ends_with("/control") || path.ends_with("/revalidate_size") {
            return Err(no(EACCES));
        }
        self.real.read(path)
    }

    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        self.change(path)?;
        if !self.real.exists(path) {
            return Err(no(ENOENT));
        }
        let (parent, name) = (Model::parent(path), path.rsplit('/').next().unwrap_or_default());
        let is_on = |directory: &str| self.real.read(&format!("{directory}/enable")).is_ok_and(|on| on == "1");
        match name {
            "vpd_unit_serial" => {
                if is_on(Model::parent(parent)) {
                    return Err(no(EINVAL));
                }
                fs::write(self.root.join(path), format!("T10 VPD Unit Serial Number: {value}"))?;
                return Ok(());
            }
            "emulate_tpu" | "emulate_tpws" if !is_on(Model::parent(parent)) => return Err(no(EINVAL)),
            "res_aptpl_metadata" if self.is_linked(Model::parent(parent)) => return Err(no(EINVAL)),
            "device_path" | "device_uuid" | "device_nguid" | "resv_enable" if is_on(parent) => return Err(no(EBUSY)),
            "addr_traddr" | "addr_trsvcid" if !self.real.list(&format!("{parent}/subsystems"))?.is_empty() => return Err(no(EACCES)),
            "enable" if value == "1" => {
                let control = self.real.read(&format!("{parent}/control")).unwrap_or_default();
                let device = control.strip_prefix("udev_path=").map(|d| d.split(',').next().unwrap_or_default().to_owned());
                let device = device.or_else(|| self.real.read(&format!("{parent}/device_path")).ok());
                match device {
                    Some(device) if self.busy.borrow().contains(&device) => return Err(no(EBUSY)),
                    Some(device) if !device.starts_with('/') => return Err(no(ENODEV)),
                    _ => {}
                }
            }
            _ => {}
        }
        fs::write(self.root.join(path), value)
    }

    fn make(&self, path: &str) -> io::Result<()> {
        self.change(path)?;
        let parent = Model::parent(path);
        let names: Vec<&str> = path.split('/').collect();
        let listens = names.len() == 6 && names[4] == "np";
        if listens && self.taken.borrow().contains(names[5]) {
            return Err(no(EADDRINUSE));
        }
        let allowed = Model::kind(path).is_some() || ["nvmet/hosts"].contains(&parent);
        if !allowed {
            return Err(no(EPERM));
        }
        fs::create_dir(self.root.join(path))?;
        self.fill(path);
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.change(path)?;
        if self.is_linked(path) {
            return Err(no(EBUSY));
        }
        // What was there at once goes along; anything else must be gone.
        let mine = |name: &str| {
            let known = Model::kind(path).unwrap_or_default();
            known.iter().any(|entry| entry.split(['=', '/']).next() == Some(name))
        };
        for name in self.real.list(path)? {
            let inner = format!("{path}/{name}");
            let holds = |inner: &str| {
                self.root.join(inner).is_dir()
                    && self.real.list(inner).is_ok_and(|names| names.iter().any(|n| self.root.join(format!("{inner}/{n}")).is_dir()))
            };
            if !mine(&name) || self.real.is_link(&inner) || holds(&inner) {
                return Err(no(ENOTEMPTY));
            }
        }
        fs::remove_dir_all(self.root.join(path))
    }

    fn link(&self, to: &str, path: &str) -> io::Result<()> {
        self.change(path)?;
        if !self.real.exists(to) {
            return Err(no(ENOENT));
        }
        if to.starts_with("target/core") && !self.real.read(&format!("{to}/enable")).is_ok_and(|on| on == "1") {
            return Err(no(ENODEV));
        }
        if path.starts_with("nvmet/ports/") {
            let port = Model::parent(Model::parent(path));
            let read = |key: &str| self.real.read(&format!("{port}/{key}")).unwrap_or_default();
            let address = format!("{}:{}", read("addr_traddr"), read("addr_trsvcid"));
            if self.taken.borrow().contains(&address) {
                return Err(no(EADDRINUSE));
            }
        }
        self.real.link(to, path)
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        self.change(path)?;
        self.real.unlink(path)
    }

    fn exists(&self, path: &str) -> bool {
        self.real.exists(path)
    }

    fn is_link(&self, path: &str) -> bool {
        self.real.is_link(path)
    }

    fn make_outside(&self, path: &Path) -> io::Result<()> {
        self.change("outside")?;
        let inside = self.root.with_file_name("outside");
        fs::create_dir_all(inside.join(path.strip_prefix("/").unwrap_or(path)))
    }

    fn read_outside(&self, path: &Path) -> Option<String> {
        let inside = self.root.with_file_name("outside");
        fs::read_to_string(inside.join(path.strip_prefix("/").unwrap_or(path))).ok()
    }

    fn note_made(&self, path: &str) -> io::Result<()> {
        self.made.borrow_mut().insert(path.to_owned());
        Ok(())
    }

    fn forget_made(&self, path: &str) {
        self.made.borrow_mut().remove(path);
    }

    fn is_made_by_us(&self, path: &str) -> bool {
        self.made.borrow().contains(path)
    }
}
