//! Distributed locks on ZooKeeper for async Rust.
