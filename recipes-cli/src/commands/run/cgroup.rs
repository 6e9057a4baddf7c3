//! A control group for the command and all that it starts.
//!
//! A process cannot leave its group by forking, by leaving its parent or by becoming another user.
//! `cgroup.kill` ends all of the group, those that fork at that moment included. Only a process that
//! may write to another group can leave, as root and what root starts may.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::Pid;
use tracing::debug;
use uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cgroup {
    folder: PathBuf,
}

impl Cgroup {
    /// Makes one inside the group of this process. An error says why that cannot be done here.
    pub(crate) fn make() -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let groups = fs::read_to_string("/proc/self/cgroup")?;
        let missing = || io::Error::new(ErrorKind::NotFound, "no cgroup2 file system is mounted");
        let parent = own_folder(&mounts, &groups).ok_or_else(missing)?;
        // Moving a process asks for this permission at the common parent.
        access(parent.join("cgroup.procs"), Access::WRITE_OK)?;
        let folder = parent.join(format!("lockctl-{}", Uuid::new_v4().simple()));
        fs::create_dir(&folder)?;
        let group = Self { folder };
        let checked = group.check();
        if checked.is_err() {
            group.remove();
        }
        checked.map(|()| group)
    }

    /// The one that `lockctl` has made.
    pub(crate) fn at(folder: &str) -> Self {
        let folder = PathBuf::from(folder);
        Self { folder }
    }

    /// `None` if the name cannot be passed on.
    pub(crate) fn name(&self) -> Option<&str> {
        self.folder.to_str()
    }

    fn check(&self) -> io::Result<()> {
        // Linux 5.14 has it.
        access(self.folder.join("cgroup.kill"), Access::WRITE_OK)?;
        let kind = fs::read_to_string(self.folder.join("cgroup.type"))?;
        match (kind.trim(), self.name()) {
            ("domain", Some(_)) => Ok(()),
            ("domain", None) => Err(io::Error::other("the name of its parent is no UTF-8")),
            (kind, _) => Err(io::Error::other(format!("it takes no processes: {kind}"))),
        }
    }

    /// Moves this process in, which must have one thread and no children.
    pub(crate) fn enter(&self) -> io::Result<()> {
        fs::write(self.folder.join("cgroup.procs"), "0")
    }

    /// Kills all processes in it. They end soon, unless they wait for a device.
    pub(crate) fn kill(&self) -> io::Result<()> {
        unless_removed(fs::write(self.folder.join("cgroup.kill"), "1"), ())
    }

    /// Whether a process runs in it, or in a group that the command has made inside it.
    pub(crate) fn is_populated(&self) -> io::Result<bool> {
        let events = fs::read_to_string(self.folder.join("cgroup.events"));
        let events = unless_removed(events, "populated 0".to_owned())?;
        Ok(!events.lines().any(|it| it == "populated 0"))
    }

    /// The processes in it at present.
    pub(crate) fn processes(&self) -> io::Result<Vec<Pid>> {
        let mut found = Vec::new();
        let mut folders = vec![self.folder.clone()];
        // Each folder is read once.
        while let Some(folder) = folders.pop() {
            let text = fs::read_to_string(folder.join("cgroup.procs"));
            let text = unless_removed(text, String::new())?;
            let pids = text.lines().filter_map(|it| it.parse().ok());
            found.extend(pids.filter_map(Pid::from_raw));
            folders.extend(unless_removed(inner(&folder), Vec::new())?);
        }
        Ok(found)
    }

    /// Removes it, if nothing runs in it and another process has not. One that stays is harmless.
    pub(crate) fn remove(&self) {
        if let Err(error) = unless_removed(remove(&self.folder), ()) {
            debug!(target: super::LOG, folder = ?self.folder, %error, "cgroup stays");
        }
    }
}

/// Only a group in which nothing runs can be removed, by the command too.
fn unless_removed<T>(read: io::Result<T>, of_an_empty_one: T) -> io::Result<T> {
    let gone = [Errno::NOENT, Errno::NODEV].map(|it| Some(it.raw_os_error()));
    match read {
        Err(error) if gone.contains(&error.raw_os_error()) => Ok(of_an_empty_one),
        read => read,
    }
}

fn remove(folder: &Path) -> io::Result<()> {
    for folder in inner(folder)? {
        remove(&folder)?;
    }
    fs::remove_dir(folder)
}

fn inner(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            folders.push(entry.path());
        }
    }
    Ok(folders)
}

/// Where this process's own group is mounted.
fn own_folder(mounts: &str, groups: &str) -> Option<PathBuf> {
    let own = groups.lines().find_map(|it| it.strip_prefix("0::"))?;
    // A group outside what this process may see.
    if own.contains("/..") {
        return None;
    }
    mounts.lines().find_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        if file_system.split(' ').next()? != "cgroup2" {
            return None;
        }
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let inside = Path::new(own).strip_prefix(root).ok()?;
        // Spaces in it are escaped. No system mounts it there.
        Some(Path::new(point).join(inside)).filter(|_| !point.contains('\\'))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::own_folder;

    const HYBRID: &str = "\
22 1 0:20 / /proc rw,relatime - proc proc rw
30 25 0:26 / /sys/fs/cgroup/systemd rw,relatime shared:8 - cgroup cgroup rw,name=systemd
31 25 0:27 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw
";

    #[test]
    fn own_group_is_found_wherever_it_is_mounted() {
        let groups = "4:memory:/x\n0::/user.slice/session-3.scope\n";
        let expected = Path::new("/sys/fs/cgroup/unified/user.slice/session-3.scope");
        assert_eq!(own_folder(HYBRID, groups).as_deref(), Some(expected));
        let root = Path::new("/sys/fs/cgroup/unified");
        assert_eq!(own_folder(HYBRID, "0::/\n").as_deref(), Some(root));
        // A container that sees a part of it.
        let part = "31 25 0:27 /docker/4 /cg rw - cgroup2 cgroup2 rw\n";
        let groups = "0::/docker/4/init\n";
        assert_eq!(
            own_folder(part, groups).as_deref(),
            Some(Path::new("/cg/init"))
        );
    }

    #[test]
    fn group_that_is_not_mounted_is_not_found() {
        let part = "31 25 0:27 /docker/4 /cg rw - cgroup2 cgroup2 rw\n";
        for (mounts, groups) in [
            ("", "0::/\n"),
            (HYBRID, "4:memory:/x\n"),
            (part, "0::/docker/5\n"),
            (HYBRID, "0::/../5\n"),
            ("31 25 0:27 / /sys/fs/cgroup rw", "0::/\n"),
        ] {
            assert_eq!(own_folder(mounts, groups), None, "{mounts} {groups}");
        }
    }
}
