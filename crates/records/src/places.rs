//! Where the daemon keeps its state and where its socket is: flags win, then the environment, then the defaults of the
//! FHS for root and of the XDG base directory specification for everybody else.

use std::path::PathBuf;

/// Environment variable for the state directory.
pub const STATE_VARIABLE: &str = "HEARTH_STATE";
/// Environment variable for the control socket.
pub const SOCKET_VARIABLE: &str = "HEARTH_SOCKET";

/// The two places a daemon is known by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Places {
    /// Directory of `state.json` and of the lock file.
    pub state_directory: PathBuf,
    /// The control socket. Export sockets lie beside it.
    pub socket: PathBuf,
}

/// What the process's surroundings say; a value, so that the rules can be tested.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Whether the effective user is root.
    pub root: bool,
    /// The numeric user id, for the last resort of the socket's place.
    pub user_id: u32,
    /// `HEARTH_STATE`.
    pub hearth_state: Option<PathBuf>,
    /// `HEARTH_SOCKET`.
    pub hearth_socket: Option<PathBuf>,
    /// `XDG_STATE_HOME`.
    pub xdg_state_home: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`.
    pub xdg_runtime_dir: Option<PathBuf>,
    /// `HOME`.
    pub home: Option<PathBuf>,
}

impl Surroundings {
    /// Those of this process. An empty variable counts as unset.
    pub fn of_process() -> Surroundings {
        let variable = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let user = rustix::process::geteuid();
        Surroundings {
            root: user.is_root(),
            user_id: user.as_raw(),
            hearth_state: variable(STATE_VARIABLE),
            hearth_socket: variable(SOCKET_VARIABLE),
            xdg_state_home: variable("XDG_STATE_HOME"),
            xdg_runtime_dir: variable("XDG_RUNTIME_DIR"),
            home: variable("HOME"),
        }
    }
}

impl Places {
    /// Chooses the places from the flags given and the surroundings.
    pub fn choose(state_flag: Option<PathBuf>, socket_flag: Option<PathBuf>, around: &Surroundings) -> Places {
        let state_directory = state_flag.or_else(|| around.hearth_state.clone()).unwrap_or_else(|| {
            if around.root {
                return PathBuf::from("/var/lib/hearth");
            }
            // A relative XDG directory is invalid by that specification and must be ignored.
            match (around.xdg_state_home.as_ref().filter(|p| p.is_absolute()), &around.home) {
                (Some(state_home), _) => state_home.join("hearth"),
                (None, Some(home)) => home.join(".local/state/hearth"),
                (None, None) => PathBuf::from(format!("/tmp/hearth-{}", around.user_id)),
            }
        });
        let socket = socket_flag.or_else(|| around.hearth_socket.clone()).unwrap_or_else(|| {
            if around.root {
                return PathBuf::from("/run/hearth/hearth.sock");
            }
            match around.xdg_runtime_dir.as_ref().filter(|p| p.is_absolute()) {
                Some(runtime) => runtime.join("hearth.sock"),
                None => state_directory.join("hearth.sock"),
            }
        });
        Places { state_directory, socket }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(flags: (Option<&str>, Option<&str>), around: Surroundings, expected: (&str, &str)) {
        let places = Places::choose(flags.0.map(PathBuf::from), flags.1.map(PathBuf::from), &around);
        assert_eq!((places.state_directory, places.socket), (expected.0.into(), expected.1.into()));
    }

    #[test]
    fn root_lives_where_the_fhs_says() {
        let root = Surroundings { root: true, xdg_state_home: Some("/x".into()), ..Default::default() };
        check((None, None), root, ("/var/lib/hearth", "/run/hearth/hearth.sock"));
    }

    #[test]
    fn others_live_where_xdg_says() {
        let user = Surroundings { home: Some("/users/ana".into()), user_id: 7, ..Default::default() };
        check((None, None), user.clone(), ("/users/ana/.local/state/hearth", "/users/ana/.local/state/hearth/hearth.sock"));
        let xdg = Surroundings { xdg_state_home: Some("/s".into()), xdg_runtime_dir: Some("/run/user/7".into()), ..user.clone() };
        check((None, None), xdg, ("/s/hearth", "/run/user/7/hearth.sock"));
        let relative = Surroundings { xdg_state_home: Some("s".into()), ..user };
        check((None, None), relative, ("/users/ana/.local/state/hearth", "/users/ana/.local/state/hearth/hearth.sock"));
        check((None, None), Surroundings { user_id: 7, ..Default::default() }, ("/tmp/hearth-7", "/tmp/hearth-7/hearth.sock"));
    }

    #[test]
    fn flags_win_over_the_environment() {
        let around = Surroundings { root: true, hearth_state: Some("/es".into()), hearth_socket: Some("/ek".into()), ..Default::default() };
        check((None, None), around.clone(), ("/es", "/ek"));
        check((Some("/fs"), Some("/fk")), around, ("/fs", "/fk"));
    }
}
