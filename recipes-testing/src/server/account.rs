//! The account that a server runs under.

use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::path::Path;

use rustix::process::geteuid;

/// In this order. The first comes with Debian's package, the second is everywhere.
const NAMES: [&str; 2] = ["postgres", "nobody"];

/// An account without rights, for a server that refuses to run as root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) user: u32,
    pub(super) group: u32,
}

impl Account {
    /// `None` if the tests do not run as root: the server then runs as they do.
    pub(super) fn instead_of_root() -> io::Result<Option<Self>> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        let accounts = fs::read_to_string("/etc/passwd")?;
        let found = NAMES.iter().find_map(|name| find(&accounts, name));
        found.map(Some).ok_or_else(|| {
            io::Error::other("the tests run as root, and there is no user postgres or nobody")
        })
    }

    /// Hands a file or folder over.
    pub(super) fn own(self, path: &Path) -> io::Result<()> {
        chown(path, Some(self.user), Some(self.group))
    }
}

/// A line is `name:password:user:group:...`.
fn find(accounts: &str, name: &str) -> Option<Account> {
    let fields = |line: &str| {
        let mut fields = line.strip_prefix(name)?.strip_prefix(':')?.split(':');
        Some(Account {
            user: fields.nth(1)?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
        })
    };
    accounts.lines().find_map(fields)
}

#[cfg(test)]
mod tests {
    use super::{Account, find};

    #[test]
    fn account_is_found_by_its_whole_name() {
        let accounts = "root:x:0:0:root:/root:/bin/bash\npostgres2:x:5:5::/:\n\
                        postgres:x:101:104:PostgreSQL,,,:/var/lib/postgresql:/bin/bash\n";
        let [user, group] = [101, 104];
        assert_eq!(find(accounts, "postgres"), Some(Account { user, group }));
        assert_eq!(find(accounts, "nobody"), None);
        assert_eq!(find("postgres:x:many:1::/:", "postgres"), None);
    }
}
