#![doc = include_str!("../../../docs/sql.md")]
