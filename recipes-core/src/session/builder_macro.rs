//! The options of every store, as methods of the builder of one.

/// The methods of [`SessionOptions`](crate::SessionOptions) for a builder that has them in its field `options`. The text
/// is what the store has to say about its session timeout.
#[doc(hidden)]
#[macro_export]
macro_rules! session_options {
    ($timeout:literal) => {
        #[doc = concat!(
            "How long the store keeps the nodes of a process that has gone silent. Default 12 s. ",
            $timeout
        )]
        ///
        /// The lock of a crashed process is free after this time. A guard is lost after half of it
        /// without an answer.
        pub fn session_timeout(mut self, timeout: ::std::time::Duration) -> Self {
            self.options = self.options.session_timeout(timeout);
            self
        }

        /// How long [`connect`](Self::connect), reads and tries such as `try_acquire` wait for an
        /// answer, and [`Session::close`] for pending clean-ups. Default 15 s.
        pub fn connect_timeout(mut self, timeout: ::std::time::Duration) -> Self {
            self.options = self.options.connect_timeout(timeout);
            self
        }

        /// Name of the application in the record that lock nodes carry. Default: the executable's.
        pub fn application(mut self, name: &str) -> Self {
            self.options = self.options.application(name);
            self
        }

        /// Names the owner, in another process, that goes on only when this session is done.
        #[doc(hidden)]
        pub fn within(mut self, owner: &str) -> Self {
            self.options = self.options.within(owner);
            self
        }

        /// Writes these bytes into lock nodes instead of the record of host, process and application.
        pub fn identity(mut self, bytes: impl Into<Vec<u8>>) -> Self {
            self.options = self.options.identity(bytes);
            self
        }

        /// How missing parents are created. Default: containers, which are removed after a minute
        /// without children.
        pub fn parent_mode(mut self, mode: $crate::ParentMode) -> Self {
            self.options = self.options.parent_mode(mode);
            self
        }

        /// The session only reads, and needs no other right: see [`SessionOptions::read_only`]. Default:
        /// false.
        pub fn read_only(mut self, only_reads: bool) -> Self {
            self.options = self.options.read_only(only_reads);
            self
        }
    };
}
