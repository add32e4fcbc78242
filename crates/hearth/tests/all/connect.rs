//! Connections to database servers: `hearth app connect` against a MariaDB whose data also lies on a volume, as it was before the
//! server changed it. Needs a MariaDB, root and `mkfs.ext4`; skipped with a message where they are missing.

use crate::support::{Place, wait_for};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn program(name: &str) -> Option<PathBuf> {
    let paths = std::env::var("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).chain(["/usr/sbin".into()]).map(|place| place.join(name)).find(|path| path.is_file());
    if found.is_none() {
        println!("skipped: {name} is missing");
    }
    found
}

fn said(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// A MariaDB over a data directory; ends with its guard.
struct Server {
    child: Child,
    client: PathBuf,
    socket: PathBuf,
}

impl Server {
    fn start(server: &Path, client: &Path, data: &Path, beside: &Path) -> Server {
        let socket = beside.join("socket");
        let child = Command::new(server)
            .args(["--no-defaults", "--user=root", "--skip-networking", "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=16M"])
            .arg("--performance-schema=ON")
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--socket={}", socket.display()))
            .arg(format!("--pid-file={}", beside.join("pid").display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let server = Server { child, client: client.into(), socket };
        wait_for("the server", || server.command("select 1").output().is_ok_and(|output| output.status.success()).then_some(()));
        server
    }

    fn command(&self, statements: &str) -> Command {
        let mut command = Command::new(&self.client);
        command.args(["--no-defaults", "-u", "root", "-N", "-B", "-e", statements]);
        command.arg(format!("--socket={}", self.socket.display())).stdin(Stdio::null());
        command
    }

    fn ask(&self, statements: &str) -> String {
        said(&mut self.command(statements))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let begun = Instant::now();
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            if begun.elapsed() > Duration::from_secs(20) {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a look.
fn applications(place: &Place) {
    wait_for("the applications", || {
        let told = place.json(&["app", "list"]);
        (told[0]["state"] == "found").then_some(())
    });
}

fn has(place: &Place, name: &str) -> bool {
    let objects = place.json(&["object", "list", "--limit", "1000"]);
    objects.as_array().is_some_and(|all| all.iter().any(|one| one["name"] == name))
}

const APP: &str = "/var/lib/mysql";

#[test]
fn a_server_completes_the_names_on_its_volume() {
    let programs = [program("mariadb-install-db"), program("mariadbd"), program("mariadb"), program("mkfs.ext4")];
    let [Some(install), Some(mariadbd), Some(client), Some(mkfs)] = programs else { return };
    if !rustix::process::geteuid().is_root() {
        println!("skipped: it needs root");
        return;
    }
    let place = Place::new();
    let beside = tempfile::tempdir().expect("a directory");
    let data = PathBuf::from(place.path("root/var/lib/mysql"));
    std::fs::create_dir_all(data.parent().expect("above")).expect("room");
    let words =
        ["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", "--user=root", "--innodb-log-file-size=16M"];
    said(Command::new(install).args(words).arg(format!("--datadir={}", data.display())));
    let start = || Server::start(&mariadbd, &client, &data, beside.path());
    let server = start();
    server.ask("create database shop");
    for table in ["orders", "items", "stock", "wares", "people"] {
        server.ask(&format!("create table shop.{table} (id int primary key, k int); insert into shop.{table} values (1, 1)"));
    }
    drop(server);
    let image = place.path("disk.img");
    said(Command::new(mkfs).args(["-q", "-F", "-b", "4096", "-d"]).arg(place.path("root")).arg(&image).arg("384M"));

    let server = start();
    server.ask(
        "alter table shop.orders add key only_the_server_knows (k), algorithm=inplace; create user hearth@localhost identified by 'pass word'; \
         grant process on *.* to hearth@localhost; grant select on performance_schema.* to hearth@localhost",
    );
    let login = |password: &str, mode: u32| {
        let path = place.path("login");
        std::fs::write(&path, format!("[client]\nsocket={}\nuser=hearth\npassword='{password}'\n", server.socket.display())).expect("room");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("its mode");
        path
    };
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "64MiB", "--ram", "0", "--content", "off"]);
    place.must(&["volume", "add", "v", "--backing", "disk.img", "--pool", "p", "--export", "nbd"]);
    applications(&place);
    assert!(has(&place, "shop.orders/PRIMARY") && !has(&place, "shop.orders/only_the_server_knows"));

    let refused = |arguments: &[&str], part: &str| {
        let ended = place.run(arguments);
        assert!(ended.status != Some(0) && ended.stderr.contains(part), "{arguments:?}: {} instead of {part:?}", ended.stderr);
    };
    let path = login("pass word", 0o644);
    let connect = ["app", "connect", APP, "--login", &path];
    refused(&connect, &format!("make it private with `chmod 600 {path}`"));
    login("wrong", 0o600);
    refused(&connect, "does not let the login in");
    refused(&["app", "connect", "none", "--login", &path], "there is no application \"none\"");
    refused(&["app", "connect", APP, "--login", "nothing"], "cannot be opened (no such file or directory)");
    refused(&["app", "disconnect", APP], "there is no connection");
    assert!(!place.must(&["app", "show", APP]).contains("connected"), "nothing is kept of a failure");

    login("pass word", 0o600);
    let told = place.must(&connect);
    assert!(told.contains("as hearth@localhost: ") && told.contains(" names read") && told.contains("done"), "{told}");
    assert!(has(&place, "shop.orders/only_the_server_knows"));
    let shown = place.must(&["app", "show", APP]);
    assert!(shown.contains(&format!("as hearth@localhost with {path}")), "{shown}");
    let sleeper = Sleeper(server.command("select sleep(1000)").stdout(Stdio::null()).spawn().expect("it starts"));
    let sessions = |place: &Place| place.json(&["app", "show", APP])["connection"]["sessions"].clone();
    wait_for("a session", || (sessions(&place) != 0).then_some(()));
    let state = std::fs::read_to_string(place.path("state/state.json")).expect("the state");
    assert!(state.contains(&path) && !state.contains("pass word"), "{state}");

    // It is asked again by the next daemon, until it is disconnected.
    daemon.stop();
    let daemon = place.daemon();
    applications(&place);
    wait_for("the name", || has(&place, "shop.orders/only_the_server_knows").then_some(()));
    wait_for("a session", || (sessions(&place) != 0).then_some(()));
    drop(sleeper);
    let told = place.must(&["app", "disconnect", APP]);
    assert!(told.starts_with("disconnected from the server of /var/lib/mysql"), "{told}");
    assert!(!place.must(&["app", "show", APP]).contains("connected"));
    place.must(&["app", "discover", "v"]);
    assert!(!has(&place, "shop.orders/only_the_server_knows") && has(&place, "shop.orders/PRIMARY"));

    // Another server, with tables of its own.
    server.ask("drop database shop; create database elsewhere; create table elsewhere.other (id int primary key)");
    refused(&connect, "is another one: it does not have most of the tables in /var/lib/mysql");
    drop(server);
    refused(&connect, "no MySQL or MariaDB answers where the login leads");
    daemon.stop();
}
