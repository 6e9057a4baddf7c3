//! A data folder that is made once per process and then copied.
//!
//! It is kept in memory. A folder would outlive the process, because nothing that is `static` is
//! ever dropped.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::account::Account;

/// The folder's files and folders, each folder before what is in it.
#[derive(Debug)]
pub(super) struct Template(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    /// Relative; empty for the folder itself.
    path: PathBuf,
    mode: u32,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Folder,
    /// A file without the zeros at its end, which are most of a log. And its length.
    File(Vec<u8>, u64),
}

impl Template {
    pub(super) fn read(folder: &Path) -> io::Result<Self> {
        let mut entries = Vec::new();
        let mut folders = vec![PathBuf::new()];
        // Ends with the last folder: nothing in a data folder is a link.
        while let Some(path) = folders.pop() {
            let at = folder.join(&path);
            for entry in fs::read_dir(&at)? {
                let entry = entry?;
                let path = path.join(entry.file_name());
                if entry.file_type()?.is_dir() {
                    folders.push(path);
                    continue;
                }
                let mut bytes = fs::read(entry.path())?;
                let length = entry.metadata()?.len();
                let end = bytes.iter().rposition(|it| *it != 0).map_or(0, |it| it + 1);
                bytes.truncate(end);
                bytes.shrink_to_fit();
                entries.push(Entry {
                    path,
                    mode: entry.metadata()?.mode(),
                    content: Content::File(bytes, length),
                });
            }
            entries.push(Entry {
                path,
                mode: fs::metadata(&at)?.mode(),
                content: Content::Folder,
            });
        }
        entries.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(Self(entries))
    }

    /// Writes it as a new folder, which belongs to the account. On a disk, every byte is written:
    /// a log that takes its room only when it is used is slower to flush.
    pub(super) fn write(
        &self,
        folder: &Path,
        account: Option<Account>,
        is_on_disk: bool,
    ) -> io::Result<()> {
        for entry in &self.0 {
            let path = folder.join(&entry.path);
            match &entry.content {
                Content::Folder => fs::create_dir(&path)?,
                Content::File(bytes, length) => {
                    let mut file = File::create_new(&path)?;
                    file.write_all(bytes)?;
                    let written = u64::try_from(bytes.len()).unwrap_or(*length);
                    let zeros = length.saturating_sub(written);
                    match is_on_disk {
                        true => drop(io::copy(
                            &mut io::Read::take(io::repeat(0), zeros),
                            &mut file,
                        )?),
                        false => file.set_len(*length)?,
                    }
                }
            }
            fs::set_permissions(&path, Permissions::from_mode(entry.mode & 0o7777))?;
            if let Some(account) = account {
                account.own(&path)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_is_equal_with_its_zeros_and_permissions() -> io::Result<()> {
        let made = tempfile::tempdir()?;
        let from = made.path().join("from");
        fs::create_dir_all(from.join("a/empty"))?;
        fs::write(
            from.join("a/log"),
            [&b"begin\0end"[..], &[0; 70_000]].concat(),
        )?;
        fs::write(from.join("zeros"), [0; 3])?;
        fs::set_permissions(from.join("zeros"), Permissions::from_mode(0o400))?;
        fs::set_permissions(&from, Permissions::from_mode(0o700))?;
        let template = Template::read(&from)?;
        for is_on_disk in [false, true] {
            let to = made.path().join(format!("to-{is_on_disk}"));
            template.write(&to, None, is_on_disk)?;
            let again = Template::read(&to)?;
            assert_eq!(format!("{again:?}"), format!("{template:?}"));
            assert_eq!(fs::read(to.join("a/log"))?, fs::read(from.join("a/log"))?);
            assert!(to.join("a/empty").is_dir());
        }
        Ok(())
    }
}
