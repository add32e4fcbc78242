//! The lines that `hearth volume show` prints for virtual machines are taken by QEMU as they are.

use std::process::Command;
use trials::command;
use trials::needs::{Need, met, program};
use trials::place::{Place, SHORT};

/// Starts a machine that does nothing with these lines, asks it for its disks, and ends it.
fn asked(lines: &str) -> String {
    let words = "qmp_capabilities query-block quit".split(' ');
    let asked: String = words.map(|word| format!("{{\"execute\":\"{word}\"}}\n")).collect();
    let machine = "qemu-system-x86_64 -machine q35 -accel tcg -nodefaults -display none -S -qmp stdio";
    let script = format!("printf '%s' '{asked}' | {machine} {lines}");
    command::must(Command::new("sh").args(["-c", &script]), SHORT)
}

#[test]
fn qemu_takes_the_lines_for_it() {
    if !met("qemu_takes_the_lines_for_it", &[Need::Program("qemu-system-x86_64")]) {
        return;
    }
    let mut place = Place::new("machines");
    place.start();
    place.pool(64, 8);
    let mut ways = vec!["nbd"];
    if met("qemu_takes_the_lines_for_it (block device)", &[Need::Root, Need::LoopExport]) {
        ways.push("loop");
    }
    for way in ways {
        let (volume, _) = place.volume(32, "write-back", &["--export", way]);
        let told = asked(&place.must(&["volume", "show", &volume, "--qemu"]));
        for part in ["\"hearth0\"", "\"virtual-size\": 33554432"] {
            assert!(told.contains(part), "{way}: no {part} in {told}");
        }
        let xml = place.must(&["volume", "show", &volume, "--libvirt"]);
        assert!(xml.starts_with("<disk type='") && xml.ends_with("</disk>\n"), "{xml}");
        if let Some(validate) = program("virt-xml-validate") {
            let domain = format!(
                "<domain type='qemu'><name>m</name><memory unit='MiB'>64</memory><os><type>hvm</type></os>\
                 <devices>{xml}</devices></domain>"
            );
            let file = place.path("domain.xml");
            std::fs::write(&file, domain).expect("there is room");
            place.must_tool(&[validate.as_str(), &file, "domain"], SHORT);
        }
    }
    place.stop();
}
