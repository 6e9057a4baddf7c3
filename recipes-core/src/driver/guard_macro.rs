//! The macro that makes the guards of all recipes.

/// Makes the guard type of a recipe: a [`LockGuard`](crate::LockGuard) under its own name.
///
/// A `single` guard holds one lock, so it has a path and a token.
#[doc(hidden)]
#[macro_export]
macro_rules! lock_guard {
    ($(#[$docs:meta])* pub struct $name:ident single) => {
        $crate::lock_guard!($(#[$docs])* pub struct $name);

        impl $name {
            /// Path of the lock directory.
            #[must_use]
            pub fn path(&self) -> &str {
                self.guard.path()
            }

            /// A number that rises with every conflicting grant of this lock, in all processes.
            /// Pass it to a store that refuses writes with a lower number than it has seen.
            ///
            /// Re-entry does not change it. See [`FencingToken`]($crate::FencingToken).
            #[must_use]
            pub fn fencing_token(&self) -> $crate::FencingToken {
                self.guard.first_fencing_token()
            }
        }
    };
    ($(#[$docs:meta])* pub struct $name:ident) => {
        $(#[$docs])*
        #[must_use = "the lock is released as soon as the guard is dropped"]
        pub struct $name {
            guard: $crate::LockGuard,
        }

        impl $name {
            pub(crate) fn new(guard: $crate::LockGuard) -> Self {
                Self { guard }
            }

            /// Makes another guard of the same hold, at once and without a request.
            ///
            /// # Errors
            /// [`LostError`]($crate::LostError) if the lock is lost.
            pub fn reenter(&self) -> Result<Self, $crate::Error> {
                self.guard.reenter().map(Self::new)
            }

            /// Releases the lock, or only leaves the hold while other guards of it live.
            ///
            /// `Ok` means that the lock was held until the call: what was done under it stands,
            /// even if the release is [not confirmed yet]($crate::ReleaseOutcome::Pending).
            ///
            /// # Errors
            /// As [`LockGuard::release`]($crate::LockGuard::release).
            ///
            /// # Cancel safety
            /// The release continues in the background when the future is dropped.
            pub async fn release(self) -> Result<$crate::ReleaseOutcome, $crate::Error> {
                self.guard.release().await
            }
        }

        /// Path, token and state.
        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                self.guard.fmt_as(stringify!($name), f)
            }
        }

        impl ::std::ops::Deref for $name {
            type Target = $crate::LockGuard;

            fn deref(&self) -> &$crate::LockGuard {
                &self.guard
            }
        }

        impl AsRef<$crate::LockGuard> for $name {
            fn as_ref(&self) -> &$crate::LockGuard {
                &self.guard
            }
        }

        impl From<$name> for $crate::LockGuard {
            fn from(guard: $name) -> Self {
                guard.guard
            }
        }
    };
}
