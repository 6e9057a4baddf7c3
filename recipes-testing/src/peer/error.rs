use std::io;
use std::time::Duration;

/// Why a peer could not be started, or a command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// This machine lacks a JDK or the jars of Curator; the text names the Debian packages.
    #[error("curator cannot run here: {details}")]
    Missing {
        /// What is missing, and how to get it.
        details: String,
    },
    /// The peer's sources did not compile, or are not where this crate was built.
    #[error("the curator peer was not built: {details}")]
    Build {
        /// The output of the build script or the compiler.
        details: String,
    },
    /// The build script or the JVM could not be started.
    #[error("could not run `{program}`")]
    Start {
        /// The program that was to run.
        program: String,
        /// Why it did not.
        source: io::Error,
    },
    /// The JVM ended before it answered.
    #[error("the curator peer ended before it answered `{command}`; its last words: {stderr:?}")]
    Exited {
        /// The command that has no answer.
        command: String,
        /// The last lines that the JVM wrote to its standard error.
        stderr: String,
    },
    /// The JVM lives but did not answer in time; the command may still be running in it.
    #[error("the curator peer did not answer `{command}` within {waited:?}")]
    NoAnswer {
        /// The command that has no answer yet.
        command: String,
        /// How long the answer was waited for.
        waited: Duration,
    },
    /// The command failed in Java.
    #[error("curator refused `{command}`: {class}: {message}")]
    Refused {
        /// The command that failed.
        command: String,
        /// Class of the exception without its package, as in `NoNodeException`.
        class: String,
        /// Message of the exception, possibly empty.
        message: String,
    },
    /// The answer does not have the form that the protocol gives it.
    #[error("the curator peer answered `{command}` with `{answer}`, which is no such answer")]
    Malformed {
        /// The command that was answered.
        command: String,
        /// The answer as it came.
        answer: String,
    },
}

impl PeerError {
    /// Returns the class of the Java exception, as in `NoNodeException`, if there was one.
    #[must_use]
    pub fn class(&self) -> Option<&str> {
        match self {
            Self::Refused { class, .. } => Some(class),
            _ => None,
        }
    }
}
