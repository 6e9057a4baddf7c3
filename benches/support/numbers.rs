//! Numbers, and how they are written.

/// The middle value, or the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len() / 2, sorted.len() % 2) {
        (0, 0) => f64::NAN,
        (middle, 0) => f64::midpoint(sorted[middle - 1], sorted[middle]),
        (middle, _) => sorted[middle],
    }
}

/// Formats a value with only the digits that matter.
pub(crate) fn figure(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        small if small < 0.1 => format!("{small:.4}"),
        large if large >= 100.0 => grouped(large),
        between => format!("{between:.2}"),
    }
}

/// Formats a value with commas between the thousands.
pub(crate) fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
    groups.join(",")
}
