//! Every frame of an acquire, a wait, a hold and a release is cut in every way, and no promise is
//! broken. On ZooKeeper, on etcd (`on_etcd`), on Redis (`on_redis`), on PostgreSQL (`on_postgres`) and on MariaDB
//! (`on_mariadb`).
//!
//! For each kind of lock a scripted run is observed through a [`FaultProxy`]. A contender holds,
//! the subject comes through the proxy and waits, and a waiter follows it. Each is granted in turn.
//! The run is repeated once for each observed frame and each fault, and again with the future
//! dropped at every poll. Then a connection is cut first, and the next one at every frame. Every run
//! is judged from outside the lock's code, by what the server itself has:
//!
//! | promise | judged by |
//! |---|---|
//! | one valid guard | a contender that is granted finds all conflicting guards invalid |
//! | tokens rise | over the grants of a lock that conflict, in their order |
//! | order | after a grant, there is no conflicting node that the server created earlier |
//! | no node left | the directories are empty while the subject's session lives on |
//! | no waiter stuck | each is granted within a bound once no conflicting node is ahead |
//! | losses are reported | `partition`: by how much before the server gives the lock to another |
//! | release | a released node is gone; one whose release failed is pursued |
//! | no panic | of any task or thread |
//! | no session lost | one that outlives the run survives every cut, and so does its guard |
//!
//! A failure names its case. `SWEEP_CASE` with a part of that name runs only these cases.
//! `SWEEP_TURN=1/3` runs a third of the cases.
//! `SWEEP_LONG` drops futures under all faults instead of two, and cuts the greeting of a connection
//! to etcd, Redis or a database for every kind of lock instead of one. A request to a database is several messages
//! that are sent together, and so is its answer: it cuts all of them, instead of the first and the last.
//!
//! On etcd, a frame is one of HTTP/2, but for a request: its headers and its message are one, because they leave
//! together, nothing happens before both have come, and only the message says what is asked. Cuts are made at frames and not at
//! whole answers, because a client learns of an answer in steps: its headers, its message, and only with its trailers that it is
//! no error. Without `SWEEP_LONG` the first and the last of the three are cut: before and after them is before and after the message.
//! Keep-alives, pings and windows go on for as long as a run takes, so only the first of each connection counts.
//!
//! Three faults are left out for messages to a database that follow another at once: silence, delay and
//! partition. What is sent together arrives together, or the connection ends.
//!
//! `SWEEP_SHOW` prints what was observed.
//!
//! [`FaultProxy`]: test_rig::FaultProxy
#![cfg(unix)]
#![allow(clippy::expect_used, reason = "a test that cannot go on has failed")]
#![allow(
    clippy::print_stdout,
    reason = "how many cases there were is part of the result"
)]

mod arena;
mod cancel;
mod case;
mod cuts;
mod observer;
mod operator;
mod partition;
mod points;
mod recipe;
mod runner;
mod scene;
mod store;
mod words;
