//! Manual pages and completions, from the definition of the command line and the table of keys.

use crate::cli::{Cli, Shell};
use crate::commands::print;
use crate::complete;
use crate::config::document;
use crate::failure::Failure;
use clap::{CommandFactory, Subcommand};
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
the command line makes no sense
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
    let man = Man::new(command.clone()).section("1").manual("hearth").source(format!("hearth {}", env!("CARGO_PKG_VERSION")));
    man.render(&mut bytes).expect("a vector takes all");
    let examples = examples_page(typed);
    pages.push((format!("{name}.1"), String::from_utf8_lossy(&bytes).into_owned() + &examples + AT_THE_END));
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        let (name, typed) = (format!("{name}-{}", sub.get_name()), format!("{typed} {}", sub.get_name()));
        command_pages(sub, &name, &typed, pages);
    }
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
        return String::new();
    }
    // A command without examples of its own has those of the commands beside it.
    let found = match (examples(command), command.rsplit_once(' ')) {
        (none, Some((above, _))) if none.is_empty() && above != "hearth" => return examples_page(above),
        (found, _) => found,
    };
    if found.is_empty() {
        return String::new();
    }
    let verbatim = |text: &String| text.replace('\\', "\\e").replace('-', "\\-").replace("\n.", "\n\\&.");
    let blocks: String = found.iter().map(|example| format!(".PP\n.nf\n{}.fi\n", verbatim(example))).collect();
    format!(".SH EXAMPLES\n{blocks}")
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

    /// Whether it is the page of a command without commands of its own.
    fn is_leaf(name: &str, pages: &[(String, String)]) -> bool {
        let Some(stem) = name.strip_suffix(".1") else { return false };
        !pages.iter().any(|(other, _)| other.strip_prefix(stem).is_some_and(|rest| rest.starts_with('-')))
    }
}
