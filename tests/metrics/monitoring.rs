//! The dashboard and the alerts of `packaging` use what is exported, as it is called there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

use metrics::set_default_local_recorder;
use serde_json::Value;
use test_rig::{MemoryEnsemble, TestEnsemble};
use yaml_rust2::{Yaml, YamlLoader};

use crate::{PREFIX, mutex, recorder, script, series};

const DASHBOARD: &str = "packaging/grafana/lock-recipes.json";
const RULES: &str = "packaging/prometheus/lock-recipes.rules.yml";
const RULES_TEST: &str = "packaging/prometheus/lock-recipes.test.yml";

/// A Prometheus server adds these.
const OF_THE_SERVER: [&str; 2] = ["job", "instance"];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(path)).unwrap()
}

fn yaml(path: &str) -> Yaml {
    YamlLoader::load_from_str(&read(path)).unwrap().remove(0)
}

fn dashboard() -> Value {
    serde_json::from_str(&read(DASHBOARD)).unwrap()
}

/// The labels of a series, or matchers of a selector: `a="b",c=~"d|e"`, without operators.
fn pairs(labels: &str) -> Vec<(String, String)> {
    let mut rest = labels;
    let mut pairs = Vec::new();
    while let Some((label, more)) = rest.split_once('"') {
        let (value, more) = more.split_once('"').unwrap();
        let label = label.trim_matches(|c: char| " ,=~!".contains(c));
        pairs.push((label.to_owned(), value.to_owned()));
        rest = more;
    }
    pairs
}

type Labels = BTreeMap<String, BTreeSet<String>>;

/// Series with the values of their labels.
#[derive(Default)]
struct Exported(BTreeMap<String, Labels>);

impl Exported {
    /// What a run in memory exports in which everything happens that alerts look for.
    async fn by_a_run() -> Self {
        let recorder = recorder();
        let metrics = recorder.handle();
        let _recording = set_default_local_recorder(&recorder);
        script(&TestEnsemble::in_memory(), &metrics).await;
        let memory = MemoryEnsemble::new();
        let session = memory.session();
        let held = mutex(&session).acquire().await.unwrap();
        memory.stop();
        held.release().await.unwrap();
        session.close().await;
        mutex(&session).acquire().await.unwrap_err();

        let mut exported = Self::default();
        for series in series(&metrics).into_keys() {
            let (name, labels) = series.split_once('{').unwrap_or((&series, ""));
            let known = exported.0.entry(format!("{PREFIX}{name}")).or_default();
            for (label, value) in pairs(labels) {
                known.entry(label).or_default().insert(value);
            }
        }
        exported
    }

    /// The metrics, each with all of its series: a histogram has several.
    fn metrics(&self) -> BTreeMap<String, Vec<&str>> {
        let mut metrics: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for series in self.0.keys() {
            let parts = ["_bucket", "_sum", "_count"];
            let metric = parts.iter().find_map(|it| series.strip_suffix(it));
            let metric = metric.unwrap_or(series).to_owned();
            metrics.entry(metric).or_default().push(series);
        }
        metrics
    }

    /// Checks that an expression names series, labels and values that exist, and returns the series.
    fn check(&self, expression: &str) -> BTreeSet<String> {
        let mut used = BTreeSet::new();
        for (name, matchers) in selectors(expression) {
            let known = self.0.get(name);
            let known = known.unwrap_or_else(|| panic!("no series {name}: {expression}"));
            for (label, values) in pairs(matchers) {
                if OF_THE_SERVER.contains(&label.as_str()) {
                    continue;
                }
                let exported = known.get(&label);
                let exported = exported.unwrap_or_else(|| panic!("{name} has no label {label}"));
                for value in values.split('|') {
                    assert!(exported.contains(value), "no {label}={value}: {expression}");
                }
            }
            for label in groupings(expression).into_iter().flatten() {
                let is_known = OF_THE_SERVER.contains(&label) || known.contains_key(label);
                assert!(is_known, "{name} is not grouped by {label}: {expression}");
            }
            used.insert(name.to_owned());
        }
        used
    }
}

/// The series that an expression names, each with its matchers.
fn selectors(expression: &str) -> Vec<(&str, &str)> {
    let starts = expression.match_indices(PREFIX);
    let selectors = starts.map(|(start, _)| {
        let rest = &expression[start..];
        let is_in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, rest) = rest.split_at(rest.find(|c| !is_in_name(c)).unwrap_or(rest.len()));
        let matchers = rest.strip_prefix('{').map(|it| it.split_once('}').unwrap());
        (name, matchers.map_or("", |(matchers, _)| matchers))
    });
    selectors.collect()
}

/// The labels of each `by (...)` and `on (...)`.
fn groupings(expression: &str) -> Vec<Vec<&str>> {
    let lists = ["by (", "on ("].map(|word| expression.split(word).skip(1));
    let labels = lists.into_iter().flatten().map(|rest| {
        let (labels, _) = rest.split_once(')').unwrap();
        labels.split(',').map(str::trim).collect()
    });
    labels.collect()
}

/// Every value of these keys, wherever it is.
fn strings<'a>(value: &'a Value, keys: &[&str], found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_str() {
                    Some(text) if keys.contains(&key.as_str()) => found.push(text),
                    _ => strings(value, keys, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|it| strings(it, keys, found)),
        _ => {}
    }
}

#[tokio::test(start_paused = true)]
async fn dashboard_shows_every_metric_by_its_name() {
    let exported = Exported::by_a_run().await;
    let dashboard = dashboard();
    let mut expressions = Vec::new();
    strings(
        &dashboard,
        &["expr", "query", "definition"],
        &mut expressions,
    );
    let shown = expressions.iter().flat_map(|it| exported.check(it));
    let shown: BTreeSet<_> = shown.collect();
    for (metric, series) in exported.metrics() {
        let is_shown = series.iter().any(|&it| shown.contains(it));
        assert!(is_shown, "no panel shows {metric}");
    }
    assert!(exported.metrics().len() >= 12, "{:?}", exported.0.keys());
}

#[tokio::test(start_paused = true)]
async fn alerts_name_what_is_exported() {
    let exported = Exported::by_a_run().await;
    let rules = yaml(RULES);
    let rules = rules["groups"][0]["rules"].as_vec().unwrap();
    for rule in rules {
        let used = exported.check(rule["expr"].as_str().unwrap());
        assert!(!used.is_empty(), "{rule:?}");
    }
    assert!(rules.len() >= 12);
    // Neither do the tests of the alerts feed them anything else.
    let tests = yaml(RULES_TEST);
    for test in tests["tests"].as_vec().unwrap() {
        for input in test["input_series"].as_vec().unwrap() {
            let series = input["series"].as_str().unwrap();
            // Buckets are as the recorder is told.
            let used = exported.check(&series.replace("le=", "instance="));
            assert_eq!(used.len(), 1, "{series}");
        }
    }
}

/// `promtool test rules` runs the tests, in `scripts/check`.
#[test]
fn every_alert_is_tested_both_ways_and_explained() {
    let (rules, tests) = (yaml(RULES), yaml(RULES_TEST));
    let guide = read("docs/operating.md");
    let tests = tests["tests"].as_vec().unwrap().iter();
    let checks: Vec<_> = tests
        .flat_map(|it| it["alert_rule_test"].as_vec().unwrap())
        .map(|it| {
            let fires = !it["exp_alerts"].as_vec().unwrap().is_empty();
            (it["alertname"].as_str().unwrap(), fires)
        })
        .collect();
    for rule in rules["groups"][0]["rules"].as_vec().unwrap() {
        let alert = rule["alert"].as_str().unwrap();
        for fires in [true, false] {
            assert!(checks.contains(&(alert, fires)), "{alert}: {fires}");
        }
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning"].contains(&severity), "{alert}");
        let annotations = &rule["annotations"];
        assert!(annotations["summary"].as_str().is_some(), "{alert}");
        assert!(annotations["description"].as_str().is_some(), "{alert}");
        let row = format!("| `{alert}` | {severity} |");
        assert!(guide.contains(&row), "no row {row:?} in the guide");
        let runbook = annotations["runbook"].as_str().unwrap();
        let anchor = runbook.strip_prefix("docs/operating.md#").unwrap();
        let mut headings = guide.lines().filter(|it| it.starts_with("##"));
        assert!(headings.any(|it| anchor_of(it) == anchor), "{runbook}");
    }
}

/// As the hosts of repositories make anchors of headings.
fn anchor_of(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text
        .chars()
        .filter(|&c| c.is_alphanumeric() || " -".contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The columns and the lines of a panel.
fn place(panel: &Value) -> [Range<u64>; 2] {
    let of = |key: &str| panel["gridPos"][key].as_u64().unwrap();
    [of("x")..of("x") + of("w"), of("y")..of("y") + of("h")]
}

#[test]
fn panels_of_the_dashboard_are_complete_and_do_not_overlap() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    for (number, panel) in panels.iter().enumerate() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}");
        let [columns, lines] = place(panel);
        assert!(!columns.is_empty() && columns.end <= 24, "{title}");
        assert!(!lines.is_empty(), "{title}");
        for other in &panels[..number] {
            let [other_columns, other_lines] = place(other);
            let is_apart = |a: &Range<u64>, b: &Range<u64>| a.end <= b.start || b.end <= a.start;
            let is_apart = is_apart(&columns, &other_columns) || is_apart(&lines, &other_lines);
            assert!(is_apart, "{title} is on {}", other["title"]);
        }
        if panel["type"] != "row" {
            check_content(panel, title);
        }
    }
}

fn check_content(panel: &Value, title: &str) {
    assert!(panel["description"].as_str().is_some(), "{title}");
    let unit = panel["fieldConfig"]["defaults"]["unit"].as_str();
    assert!(unit.is_some_and(|it| !it.is_empty()), "{title}");
    let targets = panel["targets"].as_array().unwrap();
    assert!(!targets.is_empty(), "{title}");
    let mut ids = BTreeSet::new();
    for target in targets {
        assert!(ids.insert(target["refId"].as_str().unwrap()), "{title}");
        assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
        let expression = target["expr"].as_str().unwrap();
        assert!(!selectors(expression).is_empty(), "{title}");
        // A legend by a label that is summed over is empty.
        let legend = target["legendFormat"].as_str().unwrap();
        for label in legend.split("{{").skip(1) {
            let (label, _) = label.split_once("}}").unwrap();
            let mut groupings = groupings(expression).into_iter();
            assert!(groupings.all(|it| it.contains(&label)), "{title}");
        }
    }
}
