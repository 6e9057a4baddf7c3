//! [`Nodes`](super::Nodes) on a real ensemble.
