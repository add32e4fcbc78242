//! The programs that make the loads: which a suite needs, which are there, in which version, and how the others come.

use crate::stage::{SHORT, Stage};
use crate::trouble::Trouble;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// For packages to arrive, and for Go to compile.
const INSTALLING: Duration = Duration::from_secs(1800);
/// The load generator's module, pinned with all that it needs; the same that our benchmarks use.
const GO_MODULE: [(&str, &str); 3] = [
    ("go.mod", include_str!("../../../scripts/benching/tpcc-load/go.mod")),
    ("go.sum", include_str!("../../../scripts/benching/tpcc-load/go.sum")),
    ("tools.go", include_str!("../../../scripts/benching/tpcc-load/tools.go")),
];

/// Something that suites run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tool {
    /// For people, and in [`Machine::programs`](crate::result::Machine::programs).
    pub name: &'static str,
    /// What must be there; of each, any of these names.
    pub programs: &'static [&'static [&'static str]],
    /// The Debian packages that bring it. Without servers that start by themselves, where there are such packages.
    pub packages: &'static [&'static str],
    /// Which suites run it.
    pub suites: &'static [&'static str],
    /// The suites run without it too, some other way or with less.
    pub optional: bool,
}

/// All of them.
pub const TOOLS: &[Tool] = &[
    Tool { name: "fio", programs: &[&["fio"]], packages: &["fio"], suites: &["hotspot", "depth", "many-readers", "own"], optional: false },
    Tool {
        name: "MariaDB",
        programs: &[&["mariadbd", "mysqld"], &["mariadb", "mysql"], &["mariadb-install-db", "mysql_install_db"]],
        packages: &["mariadb-server-core", "mariadb-client-core"],
        suites: &["tpcc", "database-skew", "backups"],
        optional: false,
    },
    Tool {
        name: "PostgreSQL",
        programs: &[&["postgres"], &["initdb"], &["psql"], &["pgbench"]],
        packages: &["postgresql"],
        suites: &["oltp-live", "database-skew", "backups"],
        optional: false,
    },
    Tool { name: "sysbench", programs: &[&["sysbench"]], packages: &["sysbench"], suites: &["database-skew", "backups"], optional: false },
    Tool {
        name: "file systems",
        programs: &[&["mkfs.ext4"], &["mount"], &["umount"], &["losetup"], &["setpriv"]],
        packages: &["e2fsprogs", "mount", "util-linux"],
        suites: &["tpcc", "oltp-live", "database-skew", "many-readers", "backups"],
        optional: false,
    },
    Tool {
        name: "mariadb-backup",
        programs: &[&["mariadb-backup", "mariabackup"]],
        packages: &["mariadb-backup"],
        suites: &["backups"],
        optional: true,
    },
    Tool { name: "Go", programs: &[&["go"]], packages: &["golang-go"], suites: &["tpcc", "oltp-live"], optional: true },
];

impl Tool {
    /// Whether all of it is there.
    pub fn is_there(&self) -> bool {
        self.programs.iter().all(|names| names.iter().any(|name| program(name).is_some()))
    }
}

/// What these suites run.
pub fn needed(suites: &[&str]) -> Vec<&'static Tool> {
    TOOLS.iter().filter(|tool| tool.suites.iter().any(|suite| suites.contains(suite))).collect()
}

/// What of it is missing. Go is not where go-tpc is.
pub fn missing(suites: &[&str]) -> Vec<&'static Tool> {
    let there = |tool: &Tool| tool.is_there() || tool.name == "Go" && go_tpc_there().is_some();
    needed(suites).into_iter().filter(|tool| !there(tool)).collect()
}

/// Where a program is: in `PATH`, where administrators' programs are, or where Debian keeps PostgreSQL's, the newest first.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let usual = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/go/bin"];
    let places = path.split(':').filter(|place| !place.is_empty()).chain(usual).map(PathBuf::from);
    places.chain(postgres_places()).map(|place| place.join(name)).find(|path| is_program(path))
}

fn postgres_places() -> Vec<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> =
        versions.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin")))).collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, place)| place).collect()
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// The first of these names that is there, with its path; else the first name, whose start then says that it is not installed.
pub(crate) fn program_of(names: &[&str]) -> String {
    names.iter().find_map(|name| program(name)).map_or_else(|| names[0].to_owned(), |path| path.display().to_string())
}

/// Versions of what is there, as it tells them itself.
pub fn versions(stage: &Stage, suites: &[&str]) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    for tool in needed(suites).into_iter().filter(|tool| tool.is_there()) {
        let first = program_of(tool.programs[0]);
        // `mkfs.ext4 -V` speaks on standard error only.
        let asked = match tool.name {
            "Go" => vec![first, "version".into()],
            "file systems" => vec!["sh".into(), "-c".into(), format!("{first} -V 2>&1")],
            _ => vec![first, "--version".into()],
        };
        if let Ok(text) = stage.run_unsaid(&asked, &[], SHORT) {
            versions.insert(tool.name.into(), text.lines().next().unwrap_or_default().trim().into());
        }
    }
    if suites.iter().any(|suite| ["tpcc", "oltp-live"].contains(suite)) {
        versions.insert("go-tpc".into(), format!("{} (pinned)", go_tpc_version()));
    }
    versions
}

/// Which go-tpc the module pins.
fn go_tpc_version() -> &'static str {
    let line = GO_MODULE[0].1.lines().find_map(|line| line.trim().strip_prefix("require github.com/pingcap/go-tpc "));
    line.map_or("", str::trim)
}

/// Installs what is missing, if `agreed` says yes to the question; without it, nothing is done.
///
/// # Errors
/// [`Trouble::Usage`] if something that is not optional would still be missing: what to install by hand, or with `--yes`.
/// [`Trouble::Failed`] if the installation fails.
pub fn install(stage: &Stage, missing: &[&Tool], agreed: &mut dyn FnMut(&str) -> bool) -> Result<(), Trouble> {
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().flat_map(|tool| tool.packages).copied().collect();
    let list = packages.join(" ");
    let names = missing.iter().map(|tool| tool.name).collect::<Vec<_>>().join(", ");
    let must = missing.iter().any(|tool| !tool.optional);
    let by_hand = |remedy: String| if must { Err(Trouble::failed(format!("{names}: not installed"), &remedy)) } else { Ok(()) };
    if program("apt-get").is_none() {
        return by_hand(format!("install what Debian calls {list}, then run this again"));
    }
    if !rustix::process::geteuid().is_root() {
        return by_hand(format!("`sudo apt-get install {list}`, then run this again"));
    }
    if !agreed(&format!("Missing: {names}. Install the packages {list}?")) {
        return by_hand(format!("`apt-get install {list}`, or run this again with --yes"));
    }
    let env = [("DEBIAN_FRONTEND".to_owned(), "noninteractive".to_owned())];
    let words: Vec<&str> = ["apt-get", "install", "-y", "--no-install-recommends"].into_iter().chain(packages).collect();
    // Lists that are old or not there are the usual reason to fail.
    if stage.run_with(&words, &env, INSTALLING).is_err() {
        stage.run_with(&["apt-get", "update"], &env, INSTALLING)?;
        stage.run_with(&words, &env, INSTALLING)?;
    }
    match missing.iter().find(|tool| !tool.optional && !tool.is_there()) {
        Some(tool) => Err(Trouble::failed(format!("{} is still not there after installing {list}", tool.name), "install it by hand")),
        None => Ok(()),
    }
}

/// go-tpc where it is already: as `HEARTH_GO_TPC` says, in `PATH`, or built by an earlier evaluation.
pub fn go_tpc_there() -> Option<PathBuf> {
    let said = std::env::var_os("HEARTH_GO_TPC").map(PathBuf::from).filter(|path| is_program(path));
    said.or_else(|| program("go-tpc")).or_else(|| cache_directory().map(|cache| built_go_tpc(&cache)).filter(|path| is_program(path)))
}

/// What evaluations keep for the next one.
pub fn cache_directory() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let base = base.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    base.map(|base| base.join("hearth"))
}

fn built_go_tpc(cache: &Path) -> PathBuf {
    cache.join(format!("go-tpc-{}", go_tpc_version()))
}

/// go-tpc: where it is already, in the cache directory, or built into that with Go from the pinned module.
///
/// # Errors
/// If it is not there and cannot be built: no Go, or its modules cannot be had.
pub fn go_tpc(stage: &Stage, cache: &Path) -> Result<PathBuf, Trouble> {
    if let Some(path) = go_tpc_there() {
        return Ok(path);
    }
    let built = built_go_tpc(cache);
    if is_program(&built) {
        return Ok(built);
    }
    let go = program("go")
        .ok_or_else(|| Trouble::failed("go-tpc is not there, and no Go to build it", "set HEARTH_GO_TPC to its path, or install Go"))?;
    let place = cache.join("go-tpc-source");
    std::fs::create_dir_all(&place).map_err(|error| Trouble::io("make", &place, &error))?;
    for (name, text) in GO_MODULE {
        let path = place.join(name);
        std::fs::write(&path, text).map_err(|error| Trouble::io("write", &path, &error))?;
    }
    let part = cache.join("go-tpc.part");
    let (go, place, out) = (go.display().to_string(), place.display().to_string(), part.display().to_string());
    // Older ones know no option for the directory.
    let script = "cd \"$1\" && exec \"$2\" build -o \"$3\" github.com/pingcap/go-tpc/cmd/go-tpc";
    let built_now = stage.run(&["sh", "-c", script, "sh", &place, &go, &out], INSTALLING);
    // Its sources are in the binary: nothing is lost.
    let _ = std::fs::remove_dir_all(cache.join("go-tpc-source"));
    built_now.map_err(|trouble| match trouble {
        Trouble::Stopped => Trouble::Stopped,
        other => Trouble::failed(format!("go-tpc cannot be built: {other}"), "set HEARTH_GO_TPC to the path of one"),
    })?;
    std::fs::rename(&part, &built).map_err(|error| Trouble::io("rename", &part, &error))?;
    Ok(built)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn stage() -> (tempfile::TempDir, Stage) {
        let place = tempfile::tempdir().expect("a directory");
        let stage = Stage::new(place.path(), Path::new("/bin/true"), Arc::default());
        (place, stage)
    }

    const NOWHERE: Tool = Tool {
        name: "Nothing",
        programs: &[&["sh"], &["no-such-program"]],
        packages: &["no-such-package"],
        suites: &["tpcc"],
        optional: false,
    };

    #[test]
    fn suites_name_what_they_need() {
        let names = |suites: &[&str]| needed(suites).iter().map(|tool| tool.name).collect::<Vec<_>>();
        assert_eq!(names(&["readhit"]), [""; 0]);
        assert_eq!(names(&["tpcc"]), ["MariaDB", "file systems", "Go"]);
        assert_eq!(names(&["database-skew", "hotspot"]), ["fio", "MariaDB", "PostgreSQL", "sysbench", "file systems"]);
        for tool in TOOLS {
            assert!(tool.suites.iter().all(|name| crate::catalogue::suite(name).is_some()), "{}", tool.name);
        }
    }

    #[test]
    fn what_is_there_is_found_and_what_is_not_is_not() {
        let shell = program("sh").expect("every system has one");
        assert!(shell.is_absolute() && shell.ends_with("sh"));
        assert_eq!(program("no-such-program"), None);
        assert!(!NOWHERE.is_there());
        assert_eq!(program_of(&["no-such-program", "sh"]), shell.display().to_string());
        assert_eq!(program_of(&["no-such-program"]), "no-such-program");
    }

    #[test]
    fn nothing_is_installed_that_was_not_agreed_to() {
        let (_place, stage) = stage();
        let mut asked = Vec::new();
        let refused = install(&stage, &[&NOWHERE], &mut |question| {
            asked.push(question.to_owned());
            false
        });
        let refused = refused.expect_err("it is still missing").to_string();
        assert!(refused.starts_with("Nothing: not installed; ") && refused.contains("no-such-package"), "{refused}");
        assert!(asked.iter().all(|question| question.contains("no-such-package")), "{asked:?}");
        assert!(stage.take_commands().is_empty());
        let optional = Tool { optional: true, ..NOWHERE };
        assert_eq!(install(&stage, &[&optional], &mut |_| false), Ok(()));
    }

    #[test]
    fn the_pinned_version_is_told() {
        assert!(go_tpc_version().starts_with("v1."), "{}", go_tpc_version());
        let (_place, stage) = stage();
        assert!(versions(&stage, &["tpcc"])["go-tpc"].contains("pinned"));
    }
}
