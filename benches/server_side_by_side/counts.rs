//! The cost of an operation, as the server counts it. It does not depend on the machine.

use std::time::Duration;

/// Long enough for hundreds of operations.
pub(crate) const LENGTH: Duration = Duration::from_millis(300);

/// What each operation of one case costs a side, on average.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) case: &'static str,
    pub(crate) side: &'static str,
    pub(crate) operations: u64,
    /// A value for each column of the store's page.
    pub(crate) values: Vec<f64>,
}

impl Counts {
    /// From what the server had counted before the operations, and after them.
    pub(crate) fn new(
        (case, side): (&'static str, &'static str),
        operations: u64,
        [before, after]: [Vec<f64>; 2],
    ) -> Self {
        let values = before.iter().zip(&after);
        let values = values.map(|(before, after)| (after - before) / operations as f64);
        Self {
            case,
            side,
            operations,
            values: values.collect(),
        }
    }
}
