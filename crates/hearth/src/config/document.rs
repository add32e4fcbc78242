//! The table of keys written for people: as the commented default file, as a table of `docs/configuration.md`, as a section of `hearth.toml(5)`.

use super::keys::{KEYS, Key, SECTIONS};
use std::fmt::Write;

/// Width of comment lines in the default file.
const WIDTH: usize = 100;

/// The default file: every key with what it means, its range and its default, all as comments.
pub fn default_file() -> String {
    let mut text = String::from(
        "# Configuration of hearth; see hearth.toml(5). It lists every key with its default, or with an example where the\n\
         # default is computed. Remove the # before a key to set it, run `hearth config check`, and restart the daemon.\n",
    );
    for (section, about) in SECTIONS {
        text += "\n";
        comment(&mut text, about);
        if !section.is_empty() {
            writeln!(text, "[{section}]").expect("a string takes all");
        }
        for key in of_section(section) {
            text += "\n";
            comment(&mut text, key.about);
            comment(&mut text, &format!("Value: {}. Default: {}.", key.range(), key.default));
            writeln!(text, "#{} = {}", key.parts().1, key.example).expect("a string takes all");
        }
    }
    text
}

/// The table for `docs/configuration.md`.
#[cfg(test)]
fn markdown() -> String {
    let mut text = String::from("| key | value | default | meaning |\n|---|---|---|---|\n");
    for (section, _) in SECTIONS {
        for key in of_section(section) {
            let cell = |words: &str| words.replace('|', "\\|");
            let row = format!("| `{}` | {} | {} | {} |\n", key.name, cell(&key.range()), cell(key.default), cell(key.about));
            text += &row;
        }
    }
    text
}

/// `hearth.toml(5)`, in roff.
pub fn manual(version: &str) -> String {
    let mut text = format!(
        ".TH hearth.toml 5 \"\" \"hearth {version}\" \"File formats\"\n.SH NAME\nhearth.toml \\- configuration of the hearth daemon\n.SH SYNOPSIS\n{}\n\
         .SH DESCRIPTION\nA TOML file. Flags of\n.BR hearth\\-serve (1)\ntake precedence over the environment, then this file, then the defaults. Unknown keys are \
         refused.\n.B hearth config check\nfinds every problem and its line,\n.B hearth config show\nshows the effective values and their origin.\n",
        roff(super::SYSTEM_FILE)
    );
    for (section, about) in SECTIONS {
        let title = if section.is_empty() { "FIRST KEYS".to_string() } else { format!("[{section}]").to_uppercase() };
        write!(text, ".SH \"{title}\"\n{}\n", roff(about)).expect("a string takes all");
        for key in of_section(section) {
            let (about, range, default) = (roff(key.about), roff(&key.range()), roff(key.default));
            write!(text, ".TP\n.B {}\n{about}\nValue: {range}. Default: {default}.\n", roff(key.name)).expect("a string takes all");
        }
    }
    text + AT_THE_END
}

/// What ends the page: a file, where files are, and what a check ends with.
const AT_THE_END: &str = r#".SH EXAMPLES
A file for four threads that do I/O, the API on a loopback address of TCP, and no watching of loads:
.PP
.nf
reactors = 4
[api]
listen = "127.0.0.1:7420"
[insight]
enabled = false
.fi
.PP
A file with every key to begin with, and the check after it was edited:
.PP
.nf
$ hearth config default > /etc/hearth/hearth.toml
$ hearth config check
.fi
.SH FILES
.TP
.I /etc/hearth/hearth.toml
read if it is there, and neither
.B \-\-config
nor
.B HEARTH_CONFIG
names another one
.TP
.I /run/hearth/hearth.sock
the daemon's socket for root, unless a key names another one
.TP
.I /var/lib/hearth
the daemon's state directory for root, unless a key names another one
.SH "EXIT STATUS"
Of
.BR "hearth config check" :
.TP
.B 0
the file has no problem
.TP
.B 2
it has problems, or cannot be read; each is reported with its line and what to do
.PP
.B hearth serve
ends with 2 as well if the file has problems.
.SH "SEE ALSO"
.BR hearth (1),
.BR hearth\-serve (1),
.BR hearth\-config (1)
"#;

/// Text of a manual page: hyphens and backslashes as they are, no line that begins with a request.
fn roff(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    if escaped.starts_with(['.', '\'']) { format!("\\&{escaped}") } else { escaped }
}

fn of_section(section: &str) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.parts().0 == section)
}

/// Adds `words` as comment lines of bounded width.
fn comment(text: &mut String, words: &str) {
    let mut line = String::from("#");
    for word in words.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH {
            *text += &line;
            *text += "\n";
            line = String::from("#");
        }
        line += " ";
        line += word;
    }
    *text += &line;
    *text += "\n";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::read::parse;

    #[test]
    fn the_default_file_is_good_with_and_without_its_comments() {
        assert_eq!(parse(&default_file()).1, []);
        let uncommented: String = default_file().lines().map(|line| uncomment(line) + "\n").collect();
        let (values, problems) = parse(&uncommented);
        assert_eq!(problems, []);
        assert_eq!(values.len(), KEYS.len(), "every key is there");
    }

    /// The lines between `.nf` and `.fi`, unless they are commands.
    #[test]
    fn the_example_of_the_manual_is_a_good_file() {
        let examples = AT_THE_END.split(".nf\n").skip(1).filter_map(|rest| rest.split(".fi\n").next());
        let files: Vec<&str> = examples.filter(|text| !text.starts_with('$')).collect();
        assert_eq!(files.len(), 1);
        assert_eq!(parse(files[0]).1, []);
    }

    fn uncomment(line: &str) -> String {
        let rest = line.strip_prefix('#').unwrap_or(line);
        if rest.starts_with(' ') { String::new() } else { rest.to_string() }
    }

    #[test]
    fn files_of_the_repository_say_what_the_table_says() {
        crate::snapshot::check("../../packaging/hearth.toml", &default_file());
        crate::snapshot::check_part("../../docs/configuration.md", &markdown());
    }

    #[test]
    fn the_manual_has_every_key_and_no_stray_request() {
        let manual = manual("1.2.3");
        for key in KEYS {
            assert!(manual.contains(&format!("\n.B {}\n", roff(key.name))), "{}", key.name);
        }
        for section in [".SH EXAMPLES", ".SH FILES", ".SH \"EXIT STATUS\""] {
            assert!(manual.contains(section), "{section}");
        }
        let known = [".TH", ".SH", ".TP", ".B ", ".BR", ".I ", ".PP", ".nf", ".fi"];
        let stray: Vec<_> = manual.lines().filter(|l| l.starts_with(['.', '\'']) && !known.iter().any(|k| l.starts_with(k))).collect();
        assert!(stray.is_empty(), "{stray:?}");
    }
}
