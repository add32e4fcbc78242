//! Who is at the other end of a connection, as far as the kernel knows.

use crate::limits::Client;
use api::Role;
use std::net::SocketAddr;
use std::path::Path;

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub enum Peer {
    /// A user of this machine, by the Unix socket.
    Socket {
        /// Its number.
        user: u32,
        /// What it may do.
        role: Role,
    },
    /// Somebody on the network, who must say who they are.
    Tcp {
        /// Their address.
        address: SocketAddr,
    },
}

impl Peer {
    /// Whose limits count.
    pub fn client(&self) -> Client {
        match self {
            Peer::Socket { user, .. } => Client::User(*user),
            Peer::Tcp { address } => Client::at(address.ip()),
        }
    }
}

/// What users may do who come by the Unix socket.
#[derive(Clone, Debug)]
pub struct Users {
    /// Members of this group, by name or number, may do everything.
    pub operate_group: Option<String>,
    own: u32,
}

impl Users {
    /// With the group whose members may do everything.
    pub fn new(operate_group: Option<String>) -> Users {
        Users { operate_group, own: rustix::process::geteuid().as_raw() }
    }

    /// Root, who runs the daemon, and the group's members may do everything; others who may connect at all may look.
    pub fn peer(&self, user: u32, group: u32) -> Peer {
        let trusted = user == 0 || user == self.own || self.operate_group.as_deref().is_some_and(|name| is_member(user, group, name));
        Peer::Socket { user, role: if trusted { Role::Operate } else { Role::View } }
    }
}

fn is_member(user: u32, group: u32, of: &str) -> bool {
    let read = |path: &str| std::fs::read_to_string(Path::new(path)).unwrap_or_default();
    is_listed(user, group, of, &read("/etc/passwd"), &read("/etc/group"))
}

/// Whether the group is the process's own, or lists the user by name.
fn is_listed(user: u32, group: u32, of: &str, passwd: &str, groups: &str) -> bool {
    let Some((number, members)) = find_group(of, groups).or_else(|| Some((of.parse().ok()?, Vec::new()))) else { return false };
    let mut names = passwd.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.len() >= 3 && fields[2].parse() == Ok(user)).then(|| fields[0])
    });
    group == number || names.any(|name| members.contains(&name))
}

fn find_group<'a>(name: &str, groups: &'a str) -> Option<(u32, Vec<&'a str>)> {
    groups.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [found, _, number, members] = fields[..] else { return None };
        (found == name || number == name).then(|| Some((number.parse().ok()?, members.split(',').map(str::trim).collect())))?
    })
}

/// The number of a group of this machine, given by its name or by the number itself.
pub fn group_number(name: &str) -> Option<u32> {
    name.parse().ok().or_else(|| find_group(name, &std::fs::read_to_string("/etc/group").ok()?).map(|(number, _)| number))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nana:x:1000:1000::/home/ana:/bin/sh\nben:x:1001:1001::/:/bin/sh\nbroken\n";
    const GROUPS: &str = "root:x:0:\nhearth:x:900:ana,carl\nother:x:901:ben\nhearths:x:902:ben\nbroken:x\n";

    #[test]
    fn members_are_those_of_the_group_alone() {
        let listed = |user, group, of| is_listed(user, group, of, PASSWD, GROUPS);
        assert!(listed(1000, 1000, "hearth"), "by name");
        assert!(listed(1001, 900, "hearth"), "by the process's group");
        assert!(listed(1000, 1000, "900") && listed(1001, 900, "900"), "by the group's number");
        assert!(listed(1, 4711, "4711"), "a group without a name");
        assert!(!listed(1001, 1001, "hearth") && !listed(1001, 1001, "900") && !listed(1, 1, "4711"));
        assert!(!listed(1001, 1001, "hear"));
        assert!(!listed(4242, 4242, "hearth"), "a user without a name");
        assert!(!listed(1000, 1000, "broken") && !listed(0, 0, "nothing"));
    }

    #[test]
    fn root_and_the_daemons_own_user_may_do_everything_and_others_look() {
        let users = Users { operate_group: None, own: 77 };
        for (user, role) in [(0, Role::Operate), (77, Role::Operate), (78, Role::View)] {
            let Peer::Socket { role: found, .. } = users.peer(user, 0) else { panic!("it came by the socket") };
            assert_eq!(found, role, "user {user}");
        }
    }
}
