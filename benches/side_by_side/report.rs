//! The figures, as a table for the screen and a page with pictures for readers.

use std::fmt::Write as _;
use std::fs;

use super::conditions::Conditions;
use super::counts::Counts;
use super::goal;
use super::goals::{better, goals};
use super::numbers::{figure, grouped};
use super::options::Options;
use super::pictures::pictures;
use super::plan::{self, Case, Quantity};
use super::record::{Record, Series};
use super::side::Kind;
use super::stage::Way;

const INTRODUCTION: &str = "\
# Benchmarks

This library next to Apache Curator, the lock of its own ZooKeeper client, kazoo, and the least that a
lock can cost: one create and one delete. All run on one server, in one run, in turn. Each lock is acquired
and released without work in between. `scripts/bench` writes this page. The locks on Redis are in
[redis.md](redis.md).

Times depend on the machine, which runs the server and all sides. So compare ratios, and counts, which
depend on no machine.
";

/// The limits of what the figures can show.
const LIMITS: &str = "\
What bounds the ratios: our hand-off takes one round trip, Curator's takes two (the notification, then a listing). \
So on a slow network ours is at most twice as fast. With permits it is at most some three times as fast: an acquire \
and its release take ours two round trips. Curator sends seven requests, and its time at 1.5 ms is that of six round \
trips. With 32 locks in parallel, server and machine are the limit. The raw column has a transaction for each delete, \
ours has one for several.\n";

const CURATORS_QUEUES: &str = "\
Waiters of one session share a lock object, as the threads of a service do. Curator then wakes all of
its threads for each hand-off. In the rows *an object each* every waiter has its own. Both sides' waiters \
are queued before the holder releases. Curator's queue of 1,000 runs twice, ours of 10,000 once.
";

/// Prints the tables, and writes them and the plots to the folder.
pub(crate) fn publish(
    options: &Options,
    conditions: &Conditions,
    record: &Record,
    counts: &[Counts],
) {
    let tables = [
        times(record, Way::Local),
        times(record, Way::Distant),
        goal::table(&goals(record, counts)),
        costs(counts),
    ];
    let [local, distant, aims, costs] = &tables;
    println!("{}", tables.join("\n"));
    let pictures = pictures(record);
    let mut page = INTRODUCTION.to_owned();
    page += "\n## Conditions\n\n";
    for (name, value) in &conditions.lines {
        writeln!(page, "- {name}: {value}").unwrap();
    }
    write!(
        page,
        "\n## Times\n\nThe median of the repetitions, and in brackets the lowest and the highest. \
         {CURATORS_QUEUES}\n{local}\n\
         At 1.5 ms, loopback goes through a proxy that keeps everything for 0.5 ms in each direction; \
         the first row is what that makes of a round trip.\n\n{distant}\n\
         ## Aims\n\nRatios of the medians above, and counts below.\n\n{aims}\n{LIMITS}\n\
         ## Costs\n\nPer operation, counted between the sessions and the server. Pings and this \
         library's heartbeats, some for each session in a minute, are left out.\n\n{costs}\n## Plots\n"
    )
    .unwrap();
    fs::create_dir_all(&options.output).unwrap();
    for picture in &pictures {
        let file = format!("{}.svg", picture.name);
        fs::write(options.output.join(&file), &picture.svg).unwrap();
        write!(page, "\n![{}]({file})\n", picture.title).unwrap();
    }
    fs::write(options.output.join("README.md"), page).unwrap();
    fs::write(options.output.join("figures.tsv"), figures(record)).unwrap();
    println!("written to {}", options.output.display());
}

/// One row for each quantity of each case, one column for each side.
fn times(record: &Record, way: Way) -> String {
    let mut text = format!("| {way} |  |");
    Kind::ALL
        .iter()
        .for_each(|side| write!(text, " {side} |").unwrap());
    text += " ours is better than Curator by |\n|---|---|";
    text += &"--:|".repeat(Kind::ALL.len() + 1);
    text.push('\n');
    for (case, quantity) in rows(record, way) {
        let cells = Kind::ALL.map(|side| {
            let beside = case.beside.as_ref().filter(|_| !case.sides.contains(&side));
            record.get(beside.unwrap_or(&case.name), quantity, way, side)
        });
        write!(
            text,
            "| {}{} | {} |",
            case.name,
            part(quantity),
            quantity.unit()
        )
        .unwrap();
        for cell in cells {
            write!(text, " {} |", cell.map_or_else(String::new, cell_text)).unwrap();
        }
        let [ours, curators, ..] = cells;
        let factor = ours
            .zip(curators)
            .map(|(ours, curators)| better(ours, curators));
        let factor = factor.map_or_else(String::new, |factor| format!("{factor:.1} x"));
        writeln!(text, " {factor} |").unwrap();
    }
    text
}

fn part(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::Acquire => ": the acquire alone",
        Quantity::HandOff => ": each hand-off",
        _ => "",
    }
}

/// The rows for everything that was measured, in the order of the plan.
fn rows(record: &Record, way: Way) -> Vec<(Case, Quantity)> {
    let mut rows: Vec<(Case, Quantity)> = Vec::new();
    for case in plan::cases().into_iter().filter(|case| !case.is_point) {
        for series in &record.series {
            let is_new = !rows
                .iter()
                .any(|(other, quantity)| other.name == series.case && *quantity == series.quantity);
            if series.case == case.name && series.way == way && is_new {
                rows.push((case.clone(), series.quantity));
            }
        }
    }
    rows
}

fn cell_text(series: &Series) -> String {
    let number = |value: f64| grouped(value.round());
    let spread = format!("{}..{}", number(series.lowest()), number(series.highest()));
    match series.values.len() {
        1 => format!("{} (once)", number(series.median())),
        _ => format!("{} ({spread})", number(series.median())),
    }
}

fn costs(counts: &[Counts]) -> String {
    let mut text =
        "| per operation |  | requests | transactions | notifications | bytes | operations \
                    counted |\n|---|---|--:|--:|--:|--:|--:|\n"
            .to_owned();
    for counts in counts {
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            counts.case,
            counts.side,
            figure(counts.requests),
            figure(counts.transactions),
            figure(counts.notifications),
            figure(counts.bytes),
            grouped(counts.operations as f64)
        )
        .unwrap();
    }
    text
}

/// All values, for further computation.
fn figures(record: &Record) -> String {
    let mut text = "case\tquantity\tunit\tway\tside\tvalues\n".to_owned();
    for series in &record.series {
        let values: Vec<_> = series.values.iter().map(|it| format!("{it:.2}")).collect();
        let Series {
            case,
            quantity,
            way,
            side,
            ..
        } = series;
        let unit = quantity.unit();
        writeln!(
            text,
            "{case}\t{quantity:?}\t{unit}\t{way}\t{side}\t{}",
            values.join(" ")
        )
        .unwrap();
    }
    text
}
