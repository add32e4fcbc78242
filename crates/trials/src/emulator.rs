//! A QEMU process: its guest's console, and its monitor (docs/interop/qmp-spec.rst of QEMU).

use crate::command;
use crate::initramfs::Boot;
use crate::turns::Turn;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long QEMU may take for what it does at once.
const SHORT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(50);

/// A machine. It ends with this value.
pub struct Emulator {
    child: Child,
    files: String,
    monitor: BufReader<UnixStream>,
    _turn: Turn,
}

impl Emulator {
    /// Starts a machine whose sockets and logs begin with `files`, a short path. With `incoming`, it waits for one that moves there.
    ///
    /// # Panics
    /// If QEMU does not come up; with what it said.
    pub fn start(files: &str, boot: &Boot, mib: u32, disk: &[String], incoming: Option<&str>) -> Emulator {
        let turn = Turn::wait();
        let log = File::create(format!("{files}.log")).expect("there is room");
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(["-M", "pc,memory-backend=ram", "-bios", "qboot.rom", "-accel", "tcg,thread=single", "-cpu", "max,-la57", "-no-reboot"])
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-m", &format!("{mib}M")])
            .args(["-object", &format!("memory-backend-memfd,id=ram,size={mib}M,share=on")])
            .args(["-chardev", &format!("socket,id=tty,path={files}.tty,server=on,wait=off,logfile={files}.console")])
            .args(["-serial", "chardev:tty", "-qmp", &format!("unix:{files}.qmp,server=on,wait=off")])
            .args(["-kernel", &boot.kernel.display().to_string(), "-initrd", &boot.initramfs.display().to_string()])
            .args(["-append", "console=ttyS0 loglevel=5 panic=-1 oops=panic mitigations=off tsc=reliable no_timer_check"])
            .args(disk);
        if let Some(address) = incoming {
            command.args(["-incoming", address]);
        }
        let output = |log: &File| Stdio::from(log.try_clone().expect("a descriptor is free"));
        let child = command.stdin(Stdio::null()).stdout(output(&log)).stderr(output(&log)).spawn().expect("asked for as a need");
        let begun = Instant::now();
        let monitor = loop {
            match UnixStream::connect(format!("{files}.qmp")) {
                Ok(monitor) => break monitor,
                Err(error) => assert!(begun.elapsed() < SHORT, "{error}: {}", read(files, "log")),
            }
            std::thread::sleep(POLL);
        };
        monitor.set_read_timeout(Some(SHORT)).expect("a socket has one");
        let mut emulator = Emulator { child, files: files.to_owned(), monitor: BufReader::new(monitor), _turn: turn };
        emulator.ask("qmp_capabilities", json!({}));
        emulator
    }

    /// Runs a command of the monitor; gives what it returns.
    ///
    /// # Panics
    /// If it fails.
    pub fn ask(&mut self, command: &str, arguments: Value) -> Value {
        let asked = json!({ "execute": command, "arguments": arguments }).to_string();
        self.monitor.get_mut().write_all(format!("{asked}\n").as_bytes()).expect("QEMU listens");
        loop {
            let mut line = String::new();
            let read = self.monitor.read_line(&mut line);
            assert!(read.is_ok_and(|bytes| bytes > 0), "no answer to {asked}: {}", self.told());
            let mut answer: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert!(answer.get("error").is_none(), "{asked}: {line}{}", self.told());
            // Events and the greeting come in between.
            if let Some(returned) = answer.get_mut("return") {
                return returned.take();
            }
        }
    }

    /// What the guest has said.
    pub fn console(&self) -> String {
        read(&self.files, "console")
    }

    /// All that was said, for a message.
    pub fn told(&self) -> String {
        format!("QEMU said: {}\nthe guest said: {}", read(&self.files, "log"), self.console())
    }

    /// Says a line to the guest.
    ///
    /// # Panics
    /// If the console is gone.
    pub fn say(&self, line: &str) {
        let mut console = UnixStream::connect(format!("{}.tty", self.files)).expect("QEMU listens");
        console.write_all(format!("{line}\n").as_bytes()).expect("QEMU listens");
        // Closed too early, QEMU might not have read it.
        std::thread::sleep(Duration::from_millis(500));
    }

    /// Waits until the console shows so many lines that begin with these words.
    ///
    /// # Panics
    /// If that takes longer, or `wrong` stands there before.
    pub fn wait_for(&self, words: &str, count: usize, limit: Duration) {
        let begun = Instant::now();
        loop {
            let console = self.console();
            if console.lines().filter(|line| line.starts_with(words)).count() >= count {
                return;
            }
            assert!(!console.contains("wrong: ") && begun.elapsed() < limit, "no {words} in {limit:?}. {}", self.told());
            std::thread::sleep(POLL);
        }
    }

    /// Whether QEMU has ended by itself within that time.
    pub fn has_ended(&mut self, limit: Duration) -> bool {
        command::wait(&mut self.child, limit).is_some()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        command::end(&mut self.child);
    }
}

fn read(files: &str, what: &str) -> String {
    std::fs::read(format!("{files}.{what}")).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}
