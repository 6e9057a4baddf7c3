//! The figures, as a table for the screen and a page for readers.

use std::fmt::Write as _;
use std::fs;

use super::conditions::Conditions;
use super::counts::Counts;
use super::goal;
use super::goals::goals;
use super::numbers::{figure, grouped};
use super::options::Options;
use super::plan::{self, Quantity};
use super::record::{Record, Series};
use super::side::Kind;

const INTRODUCTION: &str = "\
# Benchmarks on Redis

This library next to the locks that other clients of Redis have. All run on one server, in one run, in
turns. `scripts/bench --redis` writes this page.

- *hash, polled*: a hash with the owner and how often it has entered, in a script each for acquire and
  release. Waiters try again every 60 ms. It gives neither an order nor tokens.
- *hash, all woken*: the same, and each release wakes all waiters by a message.
- *Redisson*: its `RLock`, `RMultiLock` and `RReadWriteLock`, and in the next column its `RFairLock`. In a
  JVM of its own, with a client for each session.
- *rslock*: the crate, an implementation of Redlock, here with one server. Waiters try again after up to
  200 ms. In a process of its own.

Times depend on the machine, which runs the server and all sides. So compare ratios, and counts, which
depend on no machine.
";

/// Prints the tables, and writes them to the folder.
pub(crate) fn publish(
    options: &Options,
    conditions: &Conditions,
    record: &Record,
    counts: &[Counts],
) {
    let tables = [
        times(record),
        goal::table(&goals(record, counts)),
        costs(counts),
    ];
    let [times, aims, costs] = &tables;
    println!("{}", tables.join("\n"));
    let mut page = INTRODUCTION.to_owned();
    page += "\n## Conditions\n\n";
    for (name, value) in &conditions.lines {
        writeln!(page, "- {name}: {value}").unwrap();
    }
    write!(
        page,
        "\n## Times\n\nThe median of the rounds, and in brackets the lowest and the highest.\n\n\
         {times}\n## Aims\n\nRatios of the medians above, and counts below.\n\n{aims}\n\
         ## Costs\n\nPer grant, or per failed try, as the server counts them. Waits are \
         included.\n\n{costs}"
    )
    .unwrap();
    fs::create_dir_all(&options.output).unwrap();
    fs::write(options.output.join("redis.md"), page).unwrap();
    fs::write(options.output.join("redis.tsv"), figures(record)).unwrap();
    println!("written to {}", options.output.display());
}

/// One row for each quantity of each case, one column for each side.
fn times(record: &Record) -> String {
    let mut text = "| |  |".to_owned();
    for side in Kind::ALL {
        write!(text, " {side} |").unwrap();
    }
    text += "\n|---|---|";
    text += &"--:|".repeat(Kind::ALL.len());
    text.push('\n');
    for (case, quantity) in rows(record) {
        let (part, unit) = (quantity.part(), quantity.unit());
        write!(text, "| {case}{part} | {unit} |").unwrap();
        for side in Kind::ALL {
            let cell = record.get(case, quantity, side);
            write!(text, " {} |", cell.map_or_else(String::new, cell_text)).unwrap();
        }
        text.push('\n');
    }
    text
}

/// The rows for everything that was measured, in the order of the plan.
fn rows(record: &Record) -> Vec<(&'static str, Quantity)> {
    let mut rows = Vec::new();
    for case in plan::cases() {
        for series in record.series.iter().filter(|it| it.case == case.name) {
            let row = (case.name, series.quantity);
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
    }
    rows
}

fn cell_text(series: &Series) -> String {
    let number = |value: f64| match series.quantity {
        Quantity::Fairness => format!("{value:.2}"),
        _ => grouped(value),
    };
    let spread = format!("{}..{}", number(series.lowest()), number(series.highest()));
    match series.values.len() {
        1 => format!("{} (once)", number(series.median())),
        _ => format!("{} ({spread})", number(series.median())),
    }
}

fn costs(counts: &[Counts]) -> String {
    let mut text = "| per operation |  | scripts | other requests | messages | µs of scripts | \
                    operations counted |\n|---|---|--:|--:|--:|--:|--:|\n"
        .to_owned();
    for counts in counts {
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            counts.case,
            counts.side,
            figure(counts.scripts),
            figure(counts.others),
            figure(counts.messages),
            figure(counts.micros),
            grouped(counts.operations as f64)
        )
        .unwrap();
    }
    text
}

/// All values, for further computation.
fn figures(record: &Record) -> String {
    let mut text = "case\tquantity\tunit\tside\tvalues\n".to_owned();
    for series in &record.series {
        let values: Vec<_> = series.values.iter().map(|it| format!("{it:.2}")).collect();
        let (case, quantity, side) = (series.case, series.quantity, series.side);
        let (unit, values) = (quantity.unit(), values.join(" "));
        writeln!(text, "{case}\t{quantity:?}\t{unit}\t{side}\t{values}").unwrap();
    }
    text
}
