//! What becomes of the readers of the daemon's log, or of its terminal, neither ends it, nor lets a command fail or wait.

use crate::support::{Place, wait_until};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write, pipe};
use std::process::{Child, Command, Stdio};

/// A daemon whose standard output and error are these; ends with its guard.
struct Served(Child);

impl Served {
    fn start(place: &Place, stdout: Stdio, stderr: Stdio) -> Served {
        let child = place.command(&["serve"]).stdout(stdout).stderr(stderr).spawn().expect("the binary runs");
        let mut served = Served(child);
        wait_until("the daemon answers", || {
            assert!(served.0.try_wait().is_ok_and(|ended| ended.is_none()), "the daemon has ended");
            place.run(&["pool", "list"]).status == Some(0)
        });
        served
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
    }

    fn must_stop_cleanly(mut self) {
        self.signal(Signal::TERM);
        assert_eq!(self.0.wait().expect("it is our child").code(), Some(0));
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It has ended, unless a test failed.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn change_much(place: &Place) {
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "64MiB", "--ram", "0"]);
    place.file("disk.img", 16 << 20);
    place.must(&["volume", "add", "v", "--backing", "disk.img", "--pool", "p", "--export", "nbd"]);
    place.must(&["volume", "set", "v", "--mode", "write-back"]);
    place.must(&["volume", "remove", "v"]);
    place.must(&["pool", "destroy", "p"]);
    // What is not a command line either is one sentence.
    place.must_fail(&["volume", "show", "v"], 1, "no volume");
}

#[test]
fn readers_that_are_gone_are_no_matter() {
    let place = Place::new();
    let ((out_reader, out), (err_reader, err)) = (pipe().expect("a pipe"), pipe().expect("a pipe"));
    drop((out_reader, err_reader));
    let served = Served::start(&place, out.into(), err.into());
    change_much(&place);
    served.must_stop_cleanly();
}

/// A pipe that takes nothing more until it is read.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().expect("a pipe");
    let flags = fcntl_getfl(&writer).expect("it is open");
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).expect("it is open");
    while writer.write(b"old\n").is_ok() {}
    fcntl_setfl(&writer, flags).expect("it is open");
    (reader, writer)
}

#[test]
fn a_reader_that_sleeps_is_not_waited_for_and_reads_on_when_it_wakes() {
    let place = Place::new();
    let (reader, writer) = full_pipe();
    let served = Served::start(&place, Stdio::null(), writer.into());
    change_much(&place);
    let mut lines = BufReader::new(reader).lines().map(|line| line.expect("it is text"));
    assert!(lines.any(|line| line.contains("volume added")), "what there was room for comes when it is read");
    let rest = std::thread::spawn(move || lines.count());
    served.must_stop_cleanly();
    assert!(rest.join().expect("it ends") > 0);
    // And so is one that never wakes.
    let (reader, writer) = full_pipe();
    let served = Served::start(&place, Stdio::null(), writer.into());
    change_much(&place);
    served.must_stop_cleanly();
    drop(reader);
}

#[test]
fn the_end_of_a_session_does_not_end_the_daemon() {
    let place = Place::new();
    let served = Served::start(&place, Stdio::null(), Stdio::null());
    served.signal(Signal::HUP);
    change_much(&place);
    served.must_stop_cleanly();
}

#[test]
fn commands_whose_reader_is_gone_end_without_a_word() {
    let place = Place::new();
    let _daemon = place.daemon();
    for arguments in [&["volume", "list"][..], &["--help"], &["volume", "show", "none"], &["no-command"]] {
        let expected = place.run(arguments).status.filter(|status| *status != 0);
        let ((out_reader, out), (err_reader, err)) = (pipe().expect("a pipe"), pipe().expect("a pipe"));
        drop((out_reader, err_reader));
        let mut command: Command = place.command(arguments);
        let status = command.stdout(out).stderr(err).status().expect("the binary runs");
        assert_eq!(status.code(), Some(expected.unwrap_or(0)), "{arguments:?}");
    }
}
