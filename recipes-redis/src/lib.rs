//! Locks of `lock-recipes` on Redis.
//!
//! Users depend on `lock-recipes`, which re-exports what they need from here.
//!
//! | file | noun |
//! |---|---|
//! | `server` | `Redis`: where a service begins |
//! | `builder` | what a service sets |
//! | `address` | the servers that a URL names |
//! | `servers` | which of them is the primary now |
//! | `checks` | what a server must be like, and what it then promises |
//! | `library` | what runs inside the server; the keys are listed in `library/store.lua` |
//! | `wire` | one connection |
//! | `reads` | a connection of somebody who only reads |
//! | `words` | what is asked of the functions, in their words |
//! | `answers` | what the server's answers and errors mean |
//!
//! Sessions, requests and watches are kept by `recipes-keeper`.

mod address;
mod answers;
mod builder;
mod checks;
mod library;
mod reads;
mod server;
mod servers;
mod wire;
mod words;

pub use builder::RedisBuilder;
pub use checks::RedisRefusal;
pub use server::Redis;
