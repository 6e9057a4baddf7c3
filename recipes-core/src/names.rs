//! What stands in the store: paths, names, records, and their order. Pure.
//!
//! | file | noun |
//! |---|---|
//! | `path` | the path of a lock |
//! | `key` | a key as a part of a path |
//! | `node_name` | the name of a lock node: uuid, kind, sequence |
//! | `order` | the contenders of a listing, in the order of the queue |
//! | `record` | what a node's data says about its contender |
//! | `owner` | who re-enters; how records name a contender |
//! | `token` | the fencing token |
//! | `session_id` | how people read the id of a store session |
//! | `printable` | text of others, safe to print |

pub(crate) mod key;
pub(crate) mod node_name;
pub(crate) mod order;
pub(crate) mod owner;
pub(crate) mod path;
pub(crate) mod printable;
pub(crate) mod record;
pub(crate) mod session_id;
pub(crate) mod token;
