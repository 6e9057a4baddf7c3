//! Locks of `lock-recipes` on Apache ZooKeeper, shared safely with Apache Curator.
//!
//! Users depend on `lock-recipes`, which re-exports what they need from here.
//!
//! | file | noun |
//! |---|---|
//! | `ensemble` | `ZooKeeper`: the servers of a connect string, and where sessions come from |
//! | `builder` | what a service sets |
//! | `acl` | who may use which node |
//! | `connect_string` | the servers and the chroot that it names |
//! | `diagnosis` | why no server opened a session |
//! | `link` | how connections to the servers are made |
//! | `servers` | which server is tried next |
//! | `pace` | how long a server may take, and how long pauses are |
//! | `wire` | one connection to one server, through a client of its own |
//! | `keeper` | keeps a session alive, over one wire after the other |
//! | `kept` | a session as its keeper and its users share it |
//! | `watch` | a watch that lives through reconnects |
//! | `client` | the requests of one ZooKeeper session |
//! | `answers` | what the client's answers and errors mean for a lock |
//! | `no_delay` | switches off Nagle's algorithm |

mod acl;
mod answers;
mod builder;
mod client;
mod connect_string;
mod diagnosis;
mod ensemble;
mod keeper;
mod kept;
mod link;
mod no_delay;
mod pace;
mod servers;
mod watch;
mod wire;

#[doc(hidden)]
pub use acl::AclSource;
pub use builder::ZooKeeperBuilder;
pub use ensemble::ZooKeeper;
#[doc(hidden)]
pub use ensemble::{SESSION_TIMEOUT_MAX, TRAITS};
#[cfg(feature = "sasl-digest-md5")]
pub use zookeeper_client::DigestMd5SaslOptions;
#[cfg(feature = "sasl-gssapi")]
pub use zookeeper_client::GssapiSaslOptions;
#[cfg(any(feature = "sasl-digest-md5", feature = "sasl-gssapi"))]
pub use zookeeper_client::SaslOptions;
pub use zookeeper_client::{Acl, Acls, AuthId, Client, Permission};
#[cfg(feature = "tls")]
pub use zookeeper_client::{TlsCa, TlsCerts, TlsDynamicCerts, TlsIdentity, TlsOptions};
