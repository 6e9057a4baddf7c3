//! What runs inside the server.

use redis::{Cmd, cmd};

/// A script with the part that all begin with.
macro_rules! script {
    ($file:literal) => {
        concat!(include_str!("scripts/store.lua"), include_str!($file))
    };
}

/// One of the scripts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Script {
    Open,
    Resume,
    Requests,
    Close,
}

/// The scripts with their names, to recognize them on their way to a server.
#[doc(hidden)]
#[must_use]
pub fn scripts() -> [(&'static str, &'static str); 4] {
    Script::ALL.map(|script| (script.name(), script.source()))
}

/// The names by which a server knows the scripts, from [`Script::load`].
#[derive(Clone, Debug)]
pub(crate) struct Loaded([String; 4]);

impl Script {
    pub(crate) const ALL: [Self; 4] = [Self::Open, Self::Resume, Self::Requests, Self::Close];

    fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Resume => "resume",
            Self::Requests => "requests",
            Self::Close => "close",
        }
    }

    fn source(self) -> &'static str {
        match self {
            Self::Open => script!("scripts/open.lua"),
            Self::Resume => script!("scripts/resume.lua"),
            Self::Requests => script!("scripts/requests.lua"),
            Self::Close => script!("scripts/close.lua"),
        }
    }

    /// Makes the script known to the server, which answers with its name.
    pub(crate) fn load(self) -> Cmd {
        let mut load = cmd("SCRIPT");
        load.arg("LOAD").arg(self.source());
        load
    }
}

impl Loaded {
    pub(crate) fn new(names: [String; 4]) -> Self {
        Self(names)
    }

    /// Begins a call; its arguments come next.
    pub(crate) fn call(&self, script: Script, prefix: &str) -> Cmd {
        let [open, resume, requests, close] = &self.0;
        let name = match script {
            Script::Open => open,
            Script::Resume => resume,
            Script::Requests => requests,
            Script::Close => close,
        };
        let mut call = cmd("EVALSHA");
        call.arg(name).arg(1).arg(prefix);
        call
    }
}
