use std::io;
use std::time::Duration;

/// Why a peer could not be started, or a command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// This machine lacks a JDK or the jars of Curator, Go, or Python; the text names the Debian
    /// packages.
    #[error("the peer cannot run here: {details}")]
    Missing {
        /// What is missing, and how to get it.
        details: String,
    },
    /// The peer's sources did not compile, or are not where this crate was built.
    #[error("the peer was not built: {details}")]
    Build {
        /// The output of the build script or the compiler.
        details: String,
    },
    /// The build script or the peer could not be started.
    #[error("could not run `{program}`")]
    Start {
        /// The program that was to run.
        program: String,
        /// Why it did not.
        source: io::Error,
    },
    /// The peer ended before it answered.
    #[error("the peer ended before it answered `{command}`; its last words: {stderr:?}")]
    Exited {
        /// The command that has no answer.
        command: String,
        /// The last lines that the peer wrote to its standard error.
        stderr: String,
    },
    /// The peer lives but did not answer in time; the command may still be running in it.
    #[error("the peer did not answer `{command}` within {waited:?}")]
    NoAnswer {
        /// The command that has no answer yet.
        command: String,
        /// How long the answer was waited for.
        waited: Duration,
    },
    /// The command failed in the peer.
    #[error("the peer refused `{command}`: {class}: {message}")]
    Refused {
        /// The command that failed.
        command: String,
        /// Class of the exception without its package, as in `NoNodeException`. Go has none: `error`.
        class: String,
        /// Message of the exception, possibly empty.
        message: String,
    },
    /// The answer does not have the form that the protocol gives it.
    #[error("the peer answered `{command}` with `{answer}`, which is no such answer")]
    Malformed {
        /// The command that was answered.
        command: String,
        /// The answer as it came.
        answer: String,
    },
}

impl PeerError {
    /// Returns the class of the exception, as in `NoNodeException`, if there was one.
    #[must_use]
    pub fn class(&self) -> Option<&str> {
        match self {
            Self::Refused { class, .. } => Some(class),
            _ => None,
        }
    }
}
