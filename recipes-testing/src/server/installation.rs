//! Where Java and the server's jars are on this machine.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::builder::ServerBuilder;
use super::error::ServerError;

/// Debian's `zookeeper` package; the jar's manifest names the jars that it needs.
const DEBIAN_JAR: &str = "/usr/share/java/zookeeper.jar";
/// The manifest names only slf4j's interface. This jar prints the log. The same package depends on
/// it.
const DEBIAN_LOG_JAR: &str = "/usr/share/java/slf4j-simple.jar";

/// A part of Netty that encrypted connections need, and that the manifest does not name.
const DEBIAN_CODEC_JAR: &str = "/usr/share/java/netty-codec.jar";

/// Names an archive of the classes that a server loads, with which Java starts it with two thirds
/// of the work. A server that starts without the file makes it when it is stopped, not when it is killed.
const CLASS_ARCHIVE: &str = "ZOOKEEPER_CLASS_ARCHIVE";

/// For a quick start: one collector thread, no optimizing compiler, no files in `/tmp`.
const JVM: [&str; 4] = [
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",
];

/// What is needed to start a server.
#[derive(Clone, Debug)]
pub(super) struct Installation {
    pub(super) java: PathBuf,
    pub(super) class_path: OsString,
}

impl Installation {
    /// Searches `JAVA_HOME`, `PATH` and `ZOOKEEPER_HOME`.
    pub(super) fn find() -> Result<Self, ServerError> {
        let java = java(
            variable("JAVA_HOME").as_deref(),
            variable("PATH").as_deref(),
        );
        Ok(Self {
            java: java.ok_or(ServerError::JavaMissing)?,
            class_path: class_path(variable("ZOOKEEPER_HOME").as_deref())?,
        })
    }

    /// The arguments of Java that run a server with these options.
    pub(super) fn arguments(&self, options: &ServerBuilder, config: &Path) -> Vec<OsString> {
        let mut arguments: Vec<_> = JVM.map(OsString::from).into();
        arguments.extend([OsString::from("-cp"), self.class_path.clone()]);
        arguments.push(OsString::from(format!("-Xmx{}m", options.heap_mib)));
        if options.is_optimized {
            // The last such flag counts, and not the one for the quick compiler.
            arguments.push(OsString::from("-XX:TieredStopAtLevel=4"));
        }
        if let Some(archive) = variable(CLASS_ARCHIVE) {
            let is_made = Path::new(&archive).is_file();
            // Java takes no notice of one that was made with other jars or by another version.
            let option = match is_made {
                true => "-XX:SharedArchiveFile=",
                false => "-XX:ArchiveClassesAtExit=",
            };
            let mut argument = OsString::from(option);
            argument.push(archive);
            arguments.push(argument);
        }
        let properties = options.properties.iter();
        arguments.extend(properties.map(|(key, value)| OsString::from(format!("-D{key}={value}"))));
        // This class also runs a server that is alone.
        arguments.push(OsString::from(
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        ));
        arguments.push(config.as_os_str().to_owned());
        arguments
    }
}

fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

fn java(java_home: Option<&OsStr>, path: Option<&OsStr>) -> Option<PathBuf> {
    let home = java_home.map(|home| Path::new(home).join("bin"));
    let folders = home
        .into_iter()
        .chain(path.into_iter().flat_map(env::split_paths));
    folders
        .map(|folder| folder.join("java"))
        .find(|java| java.is_file())
}

fn class_path(zookeeper_home: Option<&OsStr>) -> Result<OsString, ServerError> {
    match zookeeper_home.map(Path::new) {
        Some(home) => release(home),
        None if Path::new(DEBIAN_JAR).is_file() => {
            let jars = [DEBIAN_JAR, DEBIAN_LOG_JAR, DEBIAN_CODEC_JAR];
            Ok(OsString::from(jars.join(":")))
        }
        None => Err(ServerError::ServerMissing {
            looked_in: PathBuf::from(DEBIAN_JAR),
        }),
    }
}

/// An unpacked release, as its own `zkEnv.sh` sees it: `conf` configures the log.
fn release(home: &Path) -> Result<OsString, ServerError> {
    let folders = [home.join("lib"), home.to_path_buf()];
    if !folders.iter().any(|folder| holds_server(folder)) {
        return Err(ServerError::ServerMissing {
            looked_in: home.to_path_buf(),
        });
    }
    let mut class_path = home.join("conf").into_os_string();
    for folder in folders {
        class_path.push(":");
        // Java itself expands the star to all jars.
        class_path.push(folder.join("*"));
    }
    Ok(class_path)
}

/// Whether the folder has `zookeeper.jar` or `zookeeper-<version>.jar`.
fn holds_server(folder: &Path) -> bool {
    let is_server = |name: &str| {
        let rest = name
            .strip_prefix("zookeeper")
            .and_then(|rest| rest.strip_suffix(".jar"));
        rest.is_some_and(|rest| {
            let version = rest.strip_prefix('-').unwrap_or("0");
            version.starts_with(|first: char| first.is_ascii_digit())
        })
    };
    folder.read_dir().is_ok_and(|mut entries| {
        entries
            .any(|entry| entry.is_ok_and(|entry| entry.file_name().to_str().is_some_and(is_server)))
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;

    use super::{class_path, java};
    use crate::ServerError;

    #[test]
    fn release_is_taken_from_zookeeper_home() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("lib")).unwrap();
        let jute_only = home.path().join("lib/zookeeper-jute-3.9.3.jar");
        fs::write(jute_only, "").unwrap();
        let missing = class_path(Some(home.path().as_os_str())).unwrap_err();
        assert!(matches!(missing, ServerError::ServerMissing { .. }));
        assert!(missing.to_string().contains("ZOOKEEPER_HOME"), "{missing}");

        fs::write(home.path().join("lib/zookeeper-3.9.3.jar"), "").unwrap();
        let found = class_path(Some(home.path().as_os_str())).unwrap();
        let at = home.path().display();
        assert_eq!(
            found.to_str().unwrap(),
            format!("{at}/conf:{at}/lib/*:{at}/*")
        );
    }

    #[test]
    fn java_home_comes_before_the_path() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("home/bin")).unwrap();
        fs::create_dir(folder.path().join("path")).unwrap();
        let (at_home, in_path) = (
            folder.path().join("home/bin/java"),
            folder.path().join("path"),
        );
        fs::write(in_path.join("java"), "").unwrap();
        let home = folder.path().join("home").into_os_string();

        let found = java(Some(&home), Some(in_path.as_os_str()));
        assert_eq!(
            found,
            Some(in_path.join("java")),
            "a home without java is passed over"
        );
        fs::write(&at_home, "").unwrap();
        assert_eq!(java(Some(&home), Some(in_path.as_os_str())), Some(at_home));
        assert_eq!(java(None, Some(OsStr::new("/nonexistent"))), None);
    }
}
