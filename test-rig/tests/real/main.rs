//! What tests start next to the locks: servers, the proxy between them and a client, a Curator.
//!
//! | file | question it answers |
//! |---|---|
//! | `server` | do servers start, fail, restart and end as a test requests? |
//! | `databases` | the same for databases; and what they forget, whom they refuse, how they follow each other |
//! | `etcd` | the same for etcd; and whether clusters elect, are cut, and replace members |
//! | `etcd_peers` | do the locks of etcd's own clients exclude each other, and would the judges see it if not? |
//! | `proxy` | does each fault of the proxy work as documented, seen from both ends? |
//! | `curator_peer` | does the Curator peer answer without a server? |

mod curator_peer;
mod databases;
mod etcd;
mod etcd_peers;
mod proxy;
mod server;
