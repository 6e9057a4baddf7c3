//! The two products that speak this protocol and can keep locks.

/// MySQL, or what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Product {
    /// From 10.6, which has SKIP LOCKED.
    MariaDb,
    /// From 8.4: versions before are no longer cared for.
    MySql,
}

/// They say that they are MySQL, and lock rows in their own way.
const OTHERS: [&str; 3] = ["TiDB", "Vitess", "OceanBase"];

impl Product {
    /// What has this version. `None` if it is too old, or another product.
    pub(super) fn of(version: &str) -> Option<Self> {
        // Of older ones that replicas of MySQL should understand.
        let number = version.strip_prefix("5.5.5-").unwrap_or(version);
        let mut parts = number.split('.').map_while(|it| it.parse::<u32>().ok());
        let number = (parts.next()?, parts.next()?);
        if version.contains("MariaDB") {
            return (number >= (10, 6)).then_some(Self::MariaDb);
        }
        let is_other = OTHERS.iter().any(|it| version.contains(it));
        (number >= (8, 4) && !is_other).then_some(Self::MySql)
    }

    /// Where a server tells how long it has been up.
    pub(super) fn status(self) -> &'static str {
        match self {
            Self::MariaDb => "information_schema.GLOBAL_STATUS",
            Self::MySql => "performance_schema.global_status",
        }
    }

    /// What lists the servers that this one follows, and how it calls the address of one.
    pub(super) fn followed(self) -> (&'static str, [&'static str; 4]) {
        match self {
            Self::MariaDb => (
                "SHOW ALL SLAVES STATUS",
                [
                    "Master_Host",
                    "Master_Port",
                    "Slave_IO_Running",
                    "Slave_SQL_Running",
                ],
            ),
            Self::MySql => (
                "SHOW REPLICA STATUS",
                [
                    "Source_Host",
                    "Source_Port",
                    "Replica_IO_Running",
                    "Replica_SQL_Running",
                ],
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_and_age_are_told_by_the_version() {
        let (maria, mysql) = (Some(Product::MariaDb), Some(Product::MySql));
        for (version, product) in [
            ("10.5.27-MariaDB", None),
            ("5.5.5-10.6.1-MariaDB-log", maria),
            ("11.4.2-MariaDB", maria),
            ("8.0.36", None),
            ("8.4.0-1.1", mysql),
            ("9.7.4-2", mysql),
            ("8.4.0-TiDB-v9.0.0", None),
            ("9.0", mysql),
            ("", None),
        ] {
            assert_eq!(Product::of(version), product, "{version}");
        }
    }
}
