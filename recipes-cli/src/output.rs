//! What is printed, and where.
//!
//! | file | noun |
//! |---|---|
//! | `json` | the shapes that scripts rely on |
//! | `table` | tables and lines for people |
//! | `print` | standard output, safe for a terminal |
//! | `messages` | standard error, which never blocks |
//! | `log` | the log on standard error |

pub(crate) mod json;
pub(crate) mod log;
pub(crate) mod messages;
pub(crate) mod print;
pub(crate) mod table;
