//! The file `zoo.cfg` of a server.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use super::builder::ServerBuilder;
use super::links::Links;

/// What one server listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    pub(super) client: u16,
    pub(super) quorum: u16,
    pub(super) election: u16,
}

/// The ports under which a server reaches the others through links of its own.
pub(super) fn through(links: &mut Links, from: usize, all: &[Ports]) -> io::Result<Vec<Ports>> {
    let mut seen = all.to_vec();
    for (to, ports) in seen.iter_mut().enumerate().filter(|(to, _)| *to != from) {
        ports.quorum = links.forward(Some(from), to, ports.quorum)?;
        ports.election = links.forward(Some(from), to, ports.election)?;
    }
    Ok(seen)
}

/// The servers of an ensemble, and the index of this one.
#[derive(Clone, Debug)]
pub(super) struct Membership {
    pub(super) index: usize,
    pub(super) all: Vec<Ports>,
}

impl Membership {
    /// Whether the ensemble has several servers, so that they need a quorum.
    pub(super) fn is_quorum(&self) -> bool {
        self.all.len() > 1
    }

    pub(super) fn client_port(&self) -> u16 {
        self.all.get(self.index).map_or(0, |ports| ports.client)
    }

    /// The number in `myid`; ZooKeeper counts from one.
    pub(super) fn id(&self) -> usize {
        self.index + 1
    }
}

/// Returns the text of the file: the defaults, the caller's lines, then those that cannot be
/// changed.
pub(super) fn text(options: &ServerBuilder, membership: &Membership, data: &Path) -> String {
    let mut lines = BTreeMap::from(
        [
            ("admin.enableServer", "false"),
            ("4lw.commands.whitelist", "*"),
            // A killed process loses nothing that it has written. Only a power cut would lose it.
            ("forceSync", "no"),
            ("maxClientCnxns", "0"),
            ("extendedTypesEnabled", "true"),
            // In ticks. Starting several JVMs on a busy machine may take seconds.
            ("initLimit", "100"),
            ("syncLimit", "10"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    for (key, time) in [
        ("tickTime", options.tick),
        ("minSessionTimeout", options.min_session_timeout),
        ("maxSessionTimeout", options.max_session_timeout),
    ] {
        lines.insert(key.to_owned(), time.as_millis().to_string());
    }
    lines.extend(options.config.clone());
    lines.insert(
        "clientPort".to_owned(),
        membership.client_port().to_string(),
    );
    lines.insert("clientPortAddress".to_owned(), "127.0.0.1".to_owned());
    lines.insert("dataDir".to_owned(), data.display().to_string());
    if membership.is_quorum() {
        for (index, ports) in membership.all.iter().enumerate() {
            let address = format!("127.0.0.1:{}:{}", ports.quorum, ports.election);
            lines.insert(format!("server.{}", index + 1), address);
        }
    }
    lines.iter().fold(String::new(), |mut text, (key, value)| {
        // Writing to a string cannot fail.
        writeln!(text, "{key}={value}").ok();
        text
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Membership, Ports, text};
    use crate::ZooKeeperServer;

    #[test]
    fn caller_overrides_defaults_but_not_what_the_handle_relies_on() {
        let options = ZooKeeperServer::builder()
            .config("forceSync", "yes")
            .config("clientPort", "1");
        let ports = Ports {
            client: 2181,
            quorum: 2182,
            election: 2183,
        };
        let membership = Membership {
            index: 0,
            all: vec![ports],
        };
        let text = text(&options, &membership, Path::new("/data"));
        assert!(text.contains("forceSync=yes\n"), "{text}");
        assert!(text.contains("clientPort=2181\n"), "{text}");
        assert!(!text.contains("server.1"), "{text}");
    }

    #[test]
    fn members_of_an_ensemble_are_on_loopback() {
        let ports = |client| Ports {
            client,
            quorum: client + 1,
            election: client + 2,
        };
        let membership = Membership {
            index: 1,
            all: vec![ports(10), ports(20), ports(30)],
        };
        let text = text(&ZooKeeperServer::builder(), &membership, Path::new("/data"));
        assert!(text.contains("clientPort=20\n"), "{text}");
        assert!(text.contains("server.3=127.0.0.1:31:32\n"), "{text}");
    }
}
