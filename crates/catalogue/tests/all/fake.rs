//! Clients that are played by shell scripts: what is asked of them and how, and whatever they may
//! answer.

use applications::{Engine, ObjectKind};
use catalogue::{Catalogue, Clients, Login, Reason, Sessions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

struct Stage {
    directory: tempfile::TempDir,
}

impl Stage {
    fn new() -> Stage {
        let stage = Stage { directory: tempfile::tempdir().expect("a directory") };
        std::fs::write(stage.login(), "[client]\npassword = secret\n").expect("written");
        mode(&stage.login(), 0o600);
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn login(&self) -> PathBuf {
        self.path("login")
    }

    /// A client that does what the lines of shell say for each question, given as `$question`.
    fn client(&self, each: &str) -> Clients {
        let path = self.path("client");
        let script = format!(
            "#!/bin/sh\necho \"$0 $*\" > {base}/words; env > {base}/environment\n\
             while read -r question; do\necho \"$question\" >> {base}/asked\ncase \"$question\" in\n\
             \"select 'hearth-end-\"*) mark=${{question#select \\'}}; echo \"${{mark%\\';}}\" ;;\n{each}\nesac\ndone\n",
            base = self.directory.path().display()
        );
        std::fs::write(&path, script).expect("written");
        mode(&path, 0o700);
        Clients { mysql: Some(path.clone()), postgres: Some(path) }
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn of(&self, engine: Engine) -> Login {
        Login::at(engine, &self.login()).expect("a login")
    }

    /// What sort of trouble a client makes that answers so to the question for names.
    fn trouble(&self, answer: &str) -> (Reason, String) {
        let clients = self.client(&format!("{HELLO}\n\"select i.space\"*) {answer} ;;"));
        let trouble = Catalogue::ask(&self.of(Engine::Innodb), &clients).expect_err(answer);
        (trouble.reason, trouble.problem)
    }
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("its mode");
}

/// Digits of a text.
fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02X}")).collect()
}

/// The introduction of a MariaDB 10.11.6 without a performance schema.
const HELLO: &str = r#""select hex(version())"*) printf '31302E31312E362D4D617269614442\t757365724068\t0\n' ;;"#;

#[test]
fn a_client_is_called_without_secrets_and_asked_read_only() {
    let stage = Stage::new();
    let names = format!("{HELLO}\n\"select i.space\"*) printf '7\\t11\\t3\\t3\\t{}\\t{}\\n' ;;", hex("shop/a"), hex("PRIMARY"));
    let catalogue = Catalogue::ask(&stage.of(Engine::Innodb), &stage.client(&names)).expect("names");
    assert_eq!((catalogue.server.product.as_str(), catalogue.server.user.as_str()), ("MariaDB 10.11.6", "user@h"));
    let name = catalogue.names.get(7, 11).expect("an index");
    assert_eq!((name.database.as_deref(), name.table.as_deref(), name.index.as_deref()), (Some("shop"), Some("a"), Some("PRIMARY")));
    assert_eq!((name.kind, name.root, catalogue.names.len()), (ObjectKind::Table, Some(3), 1));
    let words = stage.file("words");
    let file = std::fs::canonicalize(stage.login()).expect("its path");
    assert!(words.contains(&format!("client --defaults-file={} --batch", file.display())), "{words}");
    assert!(words.contains("--init-command=SET SESSION TRANSACTION READ ONLY") && words.contains("--local-infile=0"), "{words}");
    assert!(!words.contains("secret") && !stage.file("environment").contains("secret"));

    let postgres = "\"set default_transaction_read_only = on; set statement_timeout = 4500; set search_path = pg_catalog; select enc\"*) \
                    printf '31352E38\\t75\\t1\\n' ;;";
    let sessions = Sessions::open(&stage.of(Engine::Postgres), &stage.client(postgres)).expect("a connection");
    assert_eq!((sessions.server().product.as_str(), sessions.server().programs), ("PostgreSQL 15.8", true));
    let (words, environment) = (stage.file("words"), stage.file("environment"));
    assert!(!words.contains("login") && environment.contains(&format!("PGSERVICEFILE={}", file.display())), "{words} {environment}");
    let mut names: Vec<&str> = environment.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name));
    names.sort_unstable();
    assert_eq!(names, ["LANG", "PATH", "PGAPPNAME", "PGCLIENTENCODING", "PGCONNECT_TIMEOUT", "PGSERVICE", "PGSERVICEFILE"]);
}

#[test]
fn sessions_are_asked_through_one_client() {
    let stage = Stage::new();
    let row = |thread: &str, program: &str, command: &str| format!("printf '{thread}\\t{program}\\t{command}\\t75\\tNULL\\n'");
    let client = stage.client(&format!(
        "{HELLO}\n\"select p.tid\"*) {}; {}; {} ;;",
        row("41", &hex("mysqldump"), &hex("Query")),
        row("42", "NULL", &hex("Binlog Dump")),
        row("43", "NULL", &hex("Sleep"))
    ));
    let mut sessions = Sessions::open(&stage.of(Engine::Innodb), &client).expect("a connection");
    for _ in 0..5 {
        let told: Vec<_> = sessions.ask().expect("sessions").into_iter().map(|one| (one.thread, one.program)).collect();
        assert_eq!(told, [(41, "mysqldump".to_owned()), (42, "Binlog Dump".to_owned()), (43, String::new())]);
    }
    assert_eq!(stage.file("asked").matches("select hex(version())").count(), 1);
}

#[test]
fn answers_of_another_form_are_refused() {
    let stage = Stage::new();
    for answer in [
        "printf 'hello\\n'",
        "printf '1\\t2\\t3\\n'",
        "printf '1\\t2\\t3\\t4\\t61\\t61\\t61\\n'",
        "printf -- '-1\\t2\\t3\\t3\\t61\\t61\\n'",
        "printf '4294967296\\t2\\t3\\t3\\t61\\t61\\n'",
        "printf '1\\t2\\t3\\t3\\tnotes\\t61\\n'",
        "printf '1\\t2\\t3\\t3\\tNULL\\t61\\n'",
        "printf '\\377\\376\\000\\n'",
        "head -c 300000 /dev/urandom; echo",
    ] {
        let (reason, problem) = stage.trouble(answer);
        assert!(reason == Reason::Nonsense && problem.starts_with("the answer of the server is invalid"), "{answer}: {problem}");
    }
}

#[test]
fn an_answer_without_an_end_is_given_up() {
    let stage = Stage::new();
    assert_eq!(stage.trouble("cat /dev/zero").0, Reason::Nonsense);
    let (reason, problem) = stage.trouble("exec sleep 1000");
    assert_eq!((reason, problem.as_str()), (Reason::Silent, "the server did not answer within 5 seconds"));
    let (reason, problem) = stage.trouble("echo 'ERROR 1227 (42000) at line 2: Access denied' >&2; exit 1");
    assert!(reason == Reason::Denied && problem.ends_with("ERROR 1227 (42000) at line 2: Access denied"), "{problem}");
    let (reason, problem) = stage.trouble("yes 'x' | head -c 200000 >&2; exit 1");
    assert!(reason == Reason::Ended && problem.len() < 400, "{problem}");
    let clients = Clients { mysql: Some(stage.path("nothing")), postgres: None };
    assert_eq!(Catalogue::ask(&stage.of(Engine::Innodb), &clients).expect_err("no program").reason, Reason::NoClient);
    assert_eq!(Catalogue::ask(&stage.of(Engine::Postgres), &clients).expect_err("no program").reason, Reason::NoClient);
}

#[test]
fn a_file_that_was_opened_to_others_since_is_not_used() {
    let stage = Stage::new();
    let login = stage.of(Engine::Innodb);
    mode(&stage.login(), 0o644);
    let trouble = Catalogue::ask(&login, &stage.client(HELLO)).expect_err("refused");
    assert!(trouble.reason == Reason::LoginFile && trouble.remedy.contains("chmod 600"), "{trouble:?}");
    assert_eq!(stage.file("asked"), "", "no client was run");
}
