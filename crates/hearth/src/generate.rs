//! Manual pages and completions, from the definition of the command line and the table of keys.

use crate::cli::{Cli, Shell};
use crate::commands::print;
use crate::complete;
use crate::config::document;
use crate::failure::Failure;
use clap::{Arg, ArgAction, CommandFactory, Subcommand};
use clap_mangen::Man;
use std::path::{Path, PathBuf};

/// What is made for packages, and at a boot.
#[derive(Subcommand, Debug)]
pub enum Generate {
    /// Manual pages of all commands and of the configuration file
    Man {
        /// Where to
        directory: PathBuf,
    },
    /// Units for a boot, as a generator of systemd: file systems on devices that volumes are attached to
    /// are mounted when the cache is under them
    Units {
        /// Where to
        directory: PathBuf,
        /// The table of file systems
        #[arg(long, value_name = "FILE", default_value = "/etc/fstab")]
        fstab: PathBuf,
    },
}

/// The manual of all commands: where the examples of the pages come from.
const MANUAL: &str = include_str!("../../../docs/commands.md");

/// Of whose examples the first stands on the page of `hearth` itself: from an SSD to a volume, and what it brings.
const FIRST_STEPS: [&str; 5] = ["hearth serve", "hearth pool create", "hearth volume add", "hearth volume list", "hearth stats"];

/// What ends every page but those of the configuration file.
const AT_THE_END: &str = r#".SH FILES
.TP
.I /run/hearth/hearth.sock
the daemon's socket for root;
.I $XDG_RUNTIME_DIR/hearth.sock
for others
.TP
.I /var/lib/hearth
the daemon's state directory for root;
.I $XDG_STATE_HOME/hearth
for others
.TP
.I /etc/hearth/hearth.toml
the configuration file, if there is one
.TP
.I /dev/hearth/NAME
the block device of a volume or disk, under a name that stays
.SH "EXIT STATUS"
.TP
.B 0
success
.TP
.B 1
failure: one sentence on standard error says why, and what to do next
.TP
.B 2
the command line is invalid
.TP
.B 130
ended by Ctrl\-C
.SH "SEE ALSO"
.BR hearth (1),
.BR hearth.toml (5)
"#;

/// Prints completions.
///
/// # Errors
/// If standard output cannot be written.
pub fn completions(shell: Shell) -> Result<(), Failure> {
    print(&complete::registration(shell))
}

/// Writes all manual pages into a directory: `hearth.1`, `hearth-pool-create.1` and so on, and `hearth.toml.5`.
///
/// # Errors
/// If the directory cannot be written.
pub fn man(directory: &Path) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::failed(format!("{} cannot be written ({e})", directory.display()), "give another directory");
    std::fs::create_dir_all(directory).map_err(failed)?;
    for (name, page) in pages() {
        std::fs::write(directory.join(name), page).map_err(failed)?;
    }
    Ok(())
}

/// File names and texts.
fn pages() -> Vec<(String, String)> {
    let mut root = Cli::command().disable_help_flag(true);
    root.build();
    let mut pages = Vec::new();
    command_pages(&root, "hearth", "hearth", &mut pages);
    pages.push(("hearth.toml.5".into(), document::manual(env!("CARGO_PKG_VERSION"))));
    pages
}

/// `typed`: the command as it is typed; `name` has hyphens in place of its spaces.
fn command_pages(command: &clap::Command, name: &str, typed: &str, pages: &mut Vec<(String, String)>) {
    let mut bytes = Vec::new();
    // What the library makes of it leaves the names of values out, and puts options of every command between the command's own.
    let shown = command.clone().override_usage(synopsis(command, typed));
    let man = Man::new(shown).section("1").manual("hearth").source(format!("hearth {}", env!("CARGO_PKG_VERSION")));
    man.render(&mut bytes).expect("a vector takes all");
    let examples = examples_page(typed);
    pages.push((format!("{name}.1"), String::from_utf8_lossy(&bytes).into_owned() + &examples + AT_THE_END));
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        let (name, typed) = (format!("{name}-{}", sub.get_name()), format!("{typed} {}", sub.get_name()));
        command_pages(sub, &name, &typed, pages);
    }
}

/// How a command is typed, one form a line: its names and what it needs, then what may be left out, and last the options of every command.
fn synopsis(command: &clap::Command, typed: &str) -> String {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let (everywhere, own): (Vec<&Arg>, Vec<&Arg>) = shown.partition(|arg| is_everywhere(arg));
    let mut needed: Vec<String> = own.iter().filter(|arg| arg.is_positional()).map(|arg| bracketed(arg)).collect();
    let mut free: Vec<String> = Vec::new();
    let mut told: Vec<&str> = Vec::new();
    for group in command.get_groups() {
        // The library asks for it changeable, and changes nothing.
        let is_choice = !group.clone().is_multiple();
        let choices: Vec<&Arg> = own.iter().copied().filter(|arg| group.get_args().any(|id| id == arg.get_id())).collect();
        if !is_choice || choices.len() < 2 || choices.iter().any(|arg| told.contains(&arg.get_id().as_str())) {
            continue;
        }
        told.extend(choices.iter().map(|arg| arg.get_id().as_str()));
        let text = choices.iter().map(|arg| typed_as(arg)).collect::<Vec<_>>().join(" | ");
        if group.is_required_set() { needed.push(format!("({text})")) } else { free.push(format!("[{text}]")) }
    }
    for arg in own.iter().filter(|arg| !arg.is_positional() && !told.contains(&arg.get_id().as_str())) {
        if arg.is_required_set() { needed.push(bracketed(arg)) } else { free.push(bracketed(arg)) }
    }
    let everywhere: Vec<String> = everywhere.iter().map(|arg| bracketed(arg)).collect();
    let form = |parts: &[&[String]]| {
        let words = parts.iter().flat_map(|part| part.iter().map(String::as_str));
        std::iter::once(typed).chain(words).collect::<Vec<_>>().join(" ")
    };
    let is_room = command.get_subcommands().any(|sub| !sub.is_hide_set() && sub.get_name() != "help");
    let below = form(&[&["COMMAND ...".to_owned()], &everywhere]);
    match (is_room, command.is_subcommand_required_set()) {
        (false, _) => form(&[&needed, &free, &everywhere]),
        (true, true) => below,
        (true, false) => format!("{}\n{below}", form(&[&needed, &free, &everywhere])),
    }
}

/// Whether each command takes it.
fn is_everywhere(arg: &Arg) -> bool {
    let is_of_parser = matches!(arg.get_action(), ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version);
    arg.is_global_set() || is_of_parser
}

/// An argument with its value, in brackets if it may be left out.
fn bracketed(arg: &Arg) -> String {
    let text = typed_as(arg);
    let text = if arg.is_required_set() { text } else { format!("[{text}]") };
    if matches!(arg.get_action(), ArgAction::Append) { text + "..." } else { text }
}

/// An argument with its value.
fn typed_as(arg: &Arg) -> String {
    let values = arg.get_value_names().filter(|_| arg.get_action().takes_values()).unwrap_or_default();
    let value = values.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" ");
    let names = arg.get_short().map(|short| format!("-{short}")).into_iter().chain(arg.get_long().map(|long| format!("--{long}")));
    let names = names.collect::<Vec<_>>().join("|");
    [names, value].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The examples that the manual has of a command ("hearth pool create"), with what they print.
fn examples(command: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut within = false;
    for line in MANUAL.lines() {
        let Some(text) = line.strip_prefix("    ") else {
            within = false;
            continue;
        };
        if let Some(typed) = text.strip_prefix("$ ") {
            within = typed == command || typed.strip_prefix(command).is_some_and(|rest| rest.starts_with(' '));
            if within {
                found.push(String::new());
            }
        }
        if let (true, Some(example)) = (within, found.last_mut()) {
            *example += &format!("{text}\n");
        }
    }
    found
}

/// The section of a manual page that has them.
fn examples_page(command: &str) -> String {
    if command == "hearth" {
        return examples_section(FIRST_STEPS.iter().flat_map(|command| examples(command).into_iter().next()));
    }
    // A command without examples of its own has those of the commands beside it.
    let found = match (examples(command), command.rsplit_once(' ')) {
        (none, Some((above, _))) if none.is_empty() && above != "hearth" => return examples_page(above),
        (found, _) => found,
    };
    examples_section(found.into_iter())
}

fn examples_section(examples: impl Iterator<Item = String>) -> String {
    let verbatim = |text: &str| text.replace('\\', "\\e").replace('-', "\\-").replace("\n.", "\n\\&.");
    let blocks: String = examples.map(|example| format!(".PP\n.nf\n{}.fi\n", verbatim(&example))).collect();
    if blocks.is_empty() { blocks } else { format!(".SH EXAMPLES\n{blocks}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_command_has_its_page() {
        let pages = pages();
        let names: BTreeSet<_> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for name in [
            "hearth.1",
            "hearth-serve.1",
            "hearth-pool-create.1",
            "hearth-volume-set.1",
            "hearth-top.1",
            "hearth-config-check.1",
            "hearth.toml.5",
        ] {
            assert!(names.contains(name), "{name} is missing from {names:?}");
        }
        assert!(!names.iter().any(|name| name.contains("generate")), "what is hidden has no page");
        assert_eq!(names.len(), pages.len(), "no page is written twice");
        for (name, page) in &pages {
            assert!(page.contains(".SH NAME") && page.contains(".TH"), "{name}");
        }
        let (_, create) = pages.iter().find(|(name, _)| name == "hearth-pool-create.1").expect("it is there");
        assert!(create.contains("\\-\\-ssd") && create.contains("hearth pool create"), "{create}");
    }

    #[test]
    fn pages_have_files_exit_status_and_the_examples_of_the_manual() {
        let pages = pages();
        for (name, page) in pages.iter().filter(|(name, _)| name.ends_with(".1")) {
            assert!(page.contains(".SH FILES") && page.contains(".SH \"EXIT STATUS\""), "{name}");
        }
        let of = |wanted: &str| pages.iter().find(|(name, _)| name == wanted).map(|(_, page)| page.clone()).expect("it is there");
        assert!(of("hearth-pool-create.1").contains("$ hearth pool create fast \\-\\-ssd ssd.img"), "{}", of("hearth-pool-create.1"));
        let leaves: Vec<&String> = pages.iter().map(|(name, _)| name).filter(|name| is_leaf(name, &pages)).collect();
        let without: Vec<&&String> = leaves.iter().filter(|name| !of(name).contains(".SH EXAMPLES")).collect();
        assert!(without.is_empty(), "no example in docs/commands.md: {without:?}");
    }

    #[test]
    fn the_first_page_has_the_first_steps() {
        let pages = pages();
        let (_, first) = pages.iter().find(|(name, _)| name == "hearth.1").expect("it is there");
        for command in FIRST_STEPS {
            assert!(first.contains(&format!("$ {command}")), "{command}: {first}");
        }
    }

    #[test]
    fn a_synopsis_has_the_values_and_ends_with_what_every_command_takes() {
        let mut root = Cli::command().disable_help_flag(true);
        root.build();
        let of = |typed: &str| {
            let found = typed.split(' ').skip(1).fold(&root, |above, name| above.find_subcommand(name).expect("it is there"));
            synopsis(found, typed)
        };
        let everywhere = "[--socket PATH] [--state DIR] [--config FILE] [--json]";
        for (typed, rest) in [
            ("hearth pool show", "NAME"),
            ("hearth pool replace", "NAME --ssd PATH [--size SIZE] [--force] [--drop-dirty]"),
            ("hearth job", "COMMAND ..."),
            ("hearth content measure", "PATHS... [--memory SIZE]"),
            ("hearth volume show", "NAME [--libvirt | --qemu | --proxmox | --fstab]"),
            ("hearth share show", "VOLUME [--iscsi | --nvme-tcp]"),
        ] {
            assert_eq!(of(typed), format!("{typed} {rest} {everywhere}"));
        }
        let start = of("hearth analysis start");
        assert!(start.starts_with("hearth analysis start NAME (--volume VOLUME | --device PATH | --trace FILE) ["), "{start}");
        let advise = of("hearth advise");
        let (forms, last) = advise.split_once('\n').expect("two forms");
        assert!(forms.starts_with("hearth advise [NAME] [--target PERCENT]... [--budget SIZE]"), "{forms}");
        assert_eq!(last, format!("hearth advise COMMAND ... {everywhere}"));
    }

    /// Whether it is the page of a command without commands of its own.
    fn is_leaf(name: &str, pages: &[(String, String)]) -> bool {
        let Some(stem) = name.strip_suffix(".1") else { return false };
        !pages.iter().any(|(other, _)| other.strip_prefix(stem).is_some_and(|rest| rest.starts_with('-')))
    }
}
