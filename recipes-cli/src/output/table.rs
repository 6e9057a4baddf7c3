//! Locks, queues and deadlocks as tables for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use recipes_core::internal::human;
use recipes_core::{Basis, Contender, Edge, Inspection, LockKind, Standing, WaitForGraph};

use crate::exit::one_line;
use crate::output::json::session;

/// Characters of a cell that are shown: enough for the usual host, application and purpose. A node
/// may hold a megabyte; `--json` has all of it.
const CELL_MAX: usize = 400;

/// What the store does not report of a node that may not be read.
const UNKNOWN: &str = "?";

/// Locks, one a line.
pub(crate) fn list(locks: &[Inspection], now: SystemTime) -> String {
    let mut rows = vec![["LOCK", "RECIPE", "HOLD", "WAIT", "AGE", "HOLDER"].map(str::to_owned)];
    for lock in locks {
        let first = lock.holders().next();
        rows.push([
            one_line(&lock.path),
            lock.recipe.as_str().to_owned(),
            lock.holders().count().to_string(),
            lock.waiters().count().to_string(),
            first.map_or_else(String::new, |it| age(it, now)),
            strangers(lock) + &first.map_or_else(String::new, who),
        ]);
    }
    table(rows)
}

/// The nodes that no lock recipe made, which contenders may wait for all the same.
fn strangers(lock: &Inspection) -> String {
    let contenders = lock.contenders.iter();
    let strangers = contenders.filter(|it| it.standing == Standing::Stranger);
    let mut strangers = strangers.map(|it| it.participant.path.as_str());
    let Some(first) = strangers.next() else {
        return String::new();
    };
    let name = one_line(first.rsplit('/').next().unwrap_or(first));
    match strangers.count() {
        0 => format!("(stranger {name}) "),
        more => format!("(strangers {name} and {more} more) "),
    }
}

pub(crate) fn lock(lock: &Inspection, now: SystemTime) -> String {
    let mut text = format!("{}  {}\n", one_line(&lock.path), lock.recipe.as_str());
    let name = |path: &str| one_line(path.rsplit('/').next().unwrap_or(path));
    let mut rows = Vec::new();
    for contender in &lock.contenders {
        let (standing, ahead) = match &contender.standing {
            Standing::Holds => ("holds", String::new()),
            Standing::WaitsFor(ahead) => {
                let nearest = ahead.first().map_or_else(String::new, |it| name(it));
                let others = match ahead.len() {
                    0 | 1 => String::new(),
                    count => format!(" and {} more", count - 1),
                };
                ("waits", format!("for {nearest}{others}"))
            }
            Standing::Stranger => ("stranger", String::new()),
        };
        rows.push([
            standing.to_owned(),
            contender.mode.map_or("", LockKind::as_str).to_owned(),
            age(contender, now),
            name(&contender.participant.path),
            owner(contender),
            who(contender),
            ahead,
        ]);
    }
    text.push_str(&table(rows));
    text
}

/// The contender, as far as its node describes it, and whether its session is silent.
pub(crate) fn who(contender: &Contender) -> String {
    let record = record(contender);
    match contender.silent_for {
        Some(silence) => format!("(last heard {} ago) {record}", human(silence)),
        None => record,
    }
}

fn record(contender: &Contender) -> String {
    let node = &contender.participant;
    if node.revocation_requested() {
        return "(revocation requested, record unknown)".to_owned();
    }
    if !contender.is_readable {
        return "(not readable)".to_owned();
    }
    let Some(identity) = node.identity() else {
        return match String::from_utf8_lossy(&node.data).as_ref() {
            "" => "(says nothing)".to_owned(),
            text => cut(one_line(text)),
        };
    };
    let mut text = format!(
        "{} {} pid {}",
        identity.application, identity.host, identity.pid
    );
    if let Some(purpose) = &identity.purpose {
        // Writing into a string does not fail.
        let _ = write!(text, " {purpose:?}");
    }
    cut(one_line(&text))
}

/// What is known of all parties of a cycle.
pub(crate) fn basis(cycle: &[Edge]) -> Basis {
    let edges = cycle.iter().map(|it| it.basis);
    edges.max().unwrap_or(Basis::Session)
}

/// The deadlocks, or a line that there is none.
pub(crate) fn deadlocks(
    graph: &WaitForGraph,
    cycles: &[Vec<Edge>],
    locks: &[Inspection],
) -> String {
    if cycles.is_empty() {
        let waits = graph.edges.len();
        return format!("no deadlock; {waits} waits seen\n");
    }
    let contenders = locks.iter().flat_map(|it| &it.contenders);
    let contenders: BTreeMap<_, _> = contenders.map(|it| (&it.participant.path, it)).collect();
    let node = |path: &String| {
        let who = contenders.get(path).map(|it| who(it));
        format!("{}  {}", one_line(path), who.unwrap_or_default())
    };
    let mut text = String::new();
    for (number, cycle) in cycles.iter().enumerate() {
        let of = cycles.len();
        let what = match basis(cycle) {
            Basis::Owner => "deadlock",
            Basis::Session => "possible deadlock",
        };
        let _ = writeln!(text, "{what} {} of {of}:", number + 1);
        for edge in cycle {
            let basis = match edge.basis {
                Basis::Owner => "",
                Basis::Session => " (as far as sessions tell)",
            };
            let _ = writeln!(text, "  {}{basis}", one_line(&edge.to_string()));
            let _ = writeln!(text, "    waits {}", node(&edge.waiting_node));
            let _ = writeln!(text, "    held  {}", node(&edge.holding_node));
        }
    }
    text
}

/// The session that owns the node.
fn owner(contender: &Contender) -> String {
    let node = &contender.participant;
    match node.is_described {
        true => session(node.session_id),
        false => UNKNOWN.to_owned(),
    }
}

/// The time since it queued, by the clocks of the store and of this machine, which may differ.
/// No store records when it was granted.
fn age(contender: &Contender, now: SystemTime) -> String {
    let created_at = contender.participant.created_at;
    if created_at == SystemTime::UNIX_EPOCH {
        return UNKNOWN.to_owned();
    }
    let age = now.duration_since(created_at);
    short(age.unwrap_or_default())
}

fn short(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds @ 7200..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(CELL_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// A table whose columns are as wide as they need to be.
fn table<const N: usize>(rows: Vec<[String; N]>) -> String {
    let rows: Vec<_> = rows.into_iter().map(|row| row.map(cut)).collect();
    let mut widths = [0; N];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths);
        let line: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::{CELL_MAX, list, short, table};

    /// The age is not how long the lock is held, which is not known.
    #[test]
    fn list_has_the_age_of_holders() {
        let header = list(&[], UNIX_EPOCH);
        assert_eq!(header, "LOCK  RECIPE  HOLD  WAIT  AGE  HOLDER\n");
    }

    #[test]
    fn ages_are_short() {
        let ages = [0, 119, 120, 7199, 7200, 172_800].map(|it| short(Duration::from_secs(it)));
        assert_eq!(ages, ["0s", "119s", "2m", "119m", "2h", "2d"]);
    }

    #[test]
    fn columns_stand_below_each_other() {
        let rows = [["a", "bb", ""], ["ccc", "d", "e"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(rows.into()), "a    bb\nccc  d   e\n");
    }

    #[test]
    fn long_cells_are_cut() {
        let rows = ["x".repeat(100_000), "ü".repeat(CELL_MAX)].map(|it| [it, "y".to_owned()]);
        let text = table(rows.into());
        let widths: Vec<_> = text.lines().map(|it| it.chars().count()).collect();
        assert_eq!(widths, [CELL_MAX + 4; 2]);
        assert!(
            text.contains("x…  y\n") && text.contains("ü   y\n"),
            "{text}"
        );
    }
}
