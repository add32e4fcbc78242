//! Manual pages and completions, from the definition of the command line and the table of keys.

use crate::cli::{Cli, Shell};
use crate::commands::print;
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

/// What ends every page but those of the configuration file.
const SEE_ALSO: &str = ".SH \"SEE ALSO\"\n.BR hearth (1),\n.BR hearth.toml (5)\n";

/// Prints completions.
///
/// # Errors
/// If standard output cannot be written.
pub fn completions(shell: Shell) -> Result<(), Failure> {
    print(&completion_text(shell))
}

fn completion_text(shell: Shell) -> String {
    let kind = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut bytes = Vec::new();
    clap_complete::generate(kind, &mut Cli::command(), "hearth", &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
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
    command_pages(&root, "hearth", &mut pages);
    pages.push(("hearth.toml.5".into(), document::manual(env!("CARGO_PKG_VERSION"))));
    pages
}

fn command_pages(command: &clap::Command, name: &str, pages: &mut Vec<(String, String)>) {
    let mut bytes = Vec::new();
    let man = Man::new(command.clone()).section("1").manual("hearth").source(format!("hearth {}", env!("CARGO_PKG_VERSION")));
    man.render(&mut bytes).expect("a vector takes all");
    pages.push((format!("{name}.1"), String::from_utf8_lossy(&bytes).into_owned() + SEE_ALSO));
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        command_pages(sub, &format!("{name}-{}", sub.get_name()), pages);
    }
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
    fn completions_know_the_commands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = completion_text(shell);
            for word in ["destage", "completions", "write-cache-depth"] {
                assert!(text.contains(word), "{shell:?} lacks {word}");
            }
        }
    }
}
