//! Test doubles and real servers for `zookeeper-recipes`.
