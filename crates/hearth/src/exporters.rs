//! The exports that this program offers. A new one is a line here, beside its crate and its row in [`export::ways::ALL`].

use export::{Exporters, Site};
use fuse::LoopExporter;
use nbd::NbdExporter;
use std::sync::Arc;
use ublk::{Probe, UblkExporter};
use vhost_user::VhostUserExporter;

/// The command of this program that looks whether the kernel offers ublk.
const PROBE: &str = "ublk-probe";

/// All exporters; block devices with the best kind first.
pub fn all(site: &Arc<Site>) -> Exporters {
    let probe = Probe { program: "/proc/self/exe".into(), arguments: vec![PROBE.into()] };
    Exporters::new(
        site.clone(),
        vec![Arc::new(UblkExporter::new(site.clone(), probe)), Arc::new(LoopExporter::new(site.clone()))],
        vec![Arc::new(NbdExporter::new(site.clone())), Arc::new(VhostUserExporter::new(site.clone()))],
    )
}

/// What `--export` takes, for the help.
pub fn help() -> String {
    format!("How to export it: {}; may be given more than once", export::ways::usage())
}

#[cfg(test)]
mod tests {
    use export::ways::ALL;

    /// The table of `docs/commands.md`.
    fn table() -> String {
        let rows = ALL.iter().map(|way| {
            let (word, condition) =
                way.usage.split_once(" with ").map_or((way.usage, String::new()), |(word, with)| (word, format!(" with `{with}`")));
            format!("| `{}`{condition} | {} |\n", word.replace(" or ", "`, `"), way.creates)
        });
        format!("| `--export` | what it creates |\n|---|---|\n{}", rows.collect::<String>())
    }

    /// The list of the console.
    fn list() -> String {
        let rows = ALL.iter().map(|way| {
            let has_place = !way.takes.is_optional();
            format!("  {{ word: {:?}, hasPlace: {has_place}, isDevice: {}, title: {:?} }},\n", way.word, way.is_device, way.title)
        });
        let head = "/** Made by the code from its table of exports (`HEARTH_UPDATE=1 cargo test -p hearth`). `hasPlace`: a colon and a place follow the word. */\n\n";
        format!(
            "{head}export interface Way {{\n  word: string;\n  hasPlace: boolean;\n  isDevice: boolean;\n  title: string;\n}}\n\nexport const WAYS: readonly Way[] = [\n{}];\n",
            rows.collect::<String>()
        )
    }

    #[test]
    fn documents_and_console_have_all_exports() {
        crate::snapshot::check_part("../../docs/commands.md", &table());
        crate::snapshot::check("../../console/src/words/ways.ts", &list());
    }
}
