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
use super::store::Page;

const CAUTION: &str = "
Times depend on the machine, which runs the server and all sides. So compare ratios, and counts, which
depend on no machine.
";

/// What was measured on one server.
#[derive(Debug)]
pub(crate) struct Measured {
    /// The columns.
    pub(crate) sides: Vec<&'static str>,
    pub(crate) record: Record,
}

/// Prints the tables, and writes them to the folder. The first server's figures have goals.
pub(crate) fn publish(
    options: &Options,
    conditions: &Conditions,
    measured: &[Measured],
    counts: &[Counts],
) {
    let page = options.store.page();
    let mut times = String::new();
    for (says, measured) in page.stages.iter().zip(measured) {
        if !says.is_empty() {
            writeln!(times, "{says}\n").unwrap();
        }
        writeln!(times, "{}", table(page, measured)).unwrap();
    }
    let aims = goals(page.aims, &measured[0].record, counts);
    let (aims, costs) = (goal::table(&aims), costs(page, counts));
    println!("{times}{aims}\n{costs}");
    let mut text = format!("{}{CAUTION}\n## Conditions\n\n", page.introduction);
    for (name, value) in &conditions.lines {
        writeln!(text, "- {name}: {value}").unwrap();
    }
    write!(
        text,
        "\n## Times\n\nThe median of the rounds, and in brackets the lowest and the highest.\n\n\
         {times}## Aims\n\nRatios of the medians above, and counts below.\n\n{aims}\n\
         ## Costs\n\nPer grant, or per failed try, as the server counts them. Waits are \
         included.\n\n{costs}"
    )
    .unwrap();
    let file = |kind| options.output.join(format!("{}.{kind}", page.name));
    fs::create_dir_all(&options.output).unwrap();
    fs::write(file("md"), text).unwrap();
    fs::write(file("tsv"), figures(measured)).unwrap();
    println!("written to {}", options.output.display());
}

/// One row for each quantity of each case, one column for each side.
fn table(page: &Page, Measured { sides, record }: &Measured) -> String {
    let mut text = "| |  |".to_owned();
    for side in sides {
        write!(text, " {side} |").unwrap();
    }
    text += "\n|---|---|";
    text += &"--:|".repeat(sides.len());
    text.push('\n');
    for (case, quantity) in rows(page, record) {
        let (part, unit) = (quantity.part(), quantity.unit());
        write!(text, "| {case}{part} | {unit} |").unwrap();
        for side in sides {
            let cell = record.get(case, quantity, side);
            write!(text, " {} |", cell.map_or_else(String::new, cell_text)).unwrap();
        }
        text.push('\n');
    }
    text
}

/// The rows for everything that was measured, in the order of the plan.
fn rows(page: &Page, record: &Record) -> Vec<(&'static str, Quantity)> {
    let mut rows = Vec::new();
    for case in plan::cases(page.round_trip) {
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

fn costs(page: &Page, counts: &[Counts]) -> String {
    let columns = page.columns.join(" | ");
    let lines = "--:|".repeat(page.columns.len());
    let mut text =
        format!("| per operation |  | {columns} | operations counted |\n|---|---|{lines}--:|\n");
    for counts in counts {
        let values: Vec<_> = counts.values.iter().map(|it| figure(*it)).collect();
        let (case, side, values) = (counts.case, counts.side, values.join(" | "));
        let operations = grouped(counts.operations as f64);
        writeln!(text, "| {case} | {side} | {values} | {operations} |").unwrap();
    }
    text
}

/// All values, for further computation. Servers are numbered if there are several.
fn figures(measured: &[Measured]) -> String {
    let mut text = "case\tquantity\tunit\tside\tvalues".to_owned();
    if measured.len() > 1 {
        text += "\tserver";
    }
    text.push('\n');
    for (server, Measured { record, .. }) in (1..).zip(measured) {
        for series in &record.series {
            let values: Vec<_> = series.values.iter().map(|it| format!("{it:.2}")).collect();
            let (case, quantity, side) = (series.case, series.quantity, series.side);
            let (unit, values) = (quantity.unit(), values.join(" "));
            write!(text, "{case}\t{quantity:?}\t{unit}\t{side}\t{values}").unwrap();
            if measured.len() > 1 {
                write!(text, "\t{server}").unwrap();
            }
            text.push('\n');
        }
    }
    text
}
