//! The guides cover every error with which services and tools may end.

use std::fs;
use std::path::{Path, PathBuf};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(path)).unwrap()
}

/// The public enums of a source file with their variants, found by the layout of the source.
fn variants(source: &str) -> Vec<(String, String)> {
    let (mut within, mut found) = (None, Vec::new());
    for line in source.lines() {
        if let Some(rest) = line.strip_prefix("pub enum ") {
            within = Some(rest.trim_end_matches(" {").to_owned());
        } else if line == "}" {
            within = None;
        } else if let (Some(name), Some(rest)) = (&within, line.strip_prefix("    ")) {
            if rest.starts_with(|c: char| c.is_ascii_uppercase()) {
                let end = rest.find(|c: char| !c.is_alphanumeric());
                let variant = rest.split_at(end.unwrap_or(rest.len())).0;
                found.push((name.clone(), variant.to_owned()));
            }
        }
    }
    found
}

/// The source files with the public errors of core.
fn error_sources() -> Vec<PathBuf> {
    let core = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("recipes-core/src");
    let files = fs::read_dir(core.join("error")).unwrap();
    files.map(|file| file.unwrap().path()).collect()
}

#[test]
fn every_error_is_in_the_guide() {
    let guide = read("docs/errors.md");
    let both = guide.clone() + &read("docs/operating.md");
    let mut count = 0;
    for source in error_sources() {
        for (name, variant) in variants(&fs::read_to_string(source).unwrap()) {
            // Reasons and steps are described next to the errors or states that name them.
            let section = guide.split_once(&format!("**`{name}`**"));
            let section = section.map(|(_, told)| told.split("\n**`").next().unwrap());
            assert!(section.is_some() || !name.ends_with("Error"), "{name}");
            let told = section.unwrap_or(&both);
            // A variant is named with its fields, or without.
            let mut forms = [format!("`{variant}`"), format!("`{variant} {{")].into_iter();
            assert!(forms.any(|it| told.contains(&it)), "{name}::{variant}");
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
}

#[test]
fn every_exit_code_of_lockctl_is_in_its_guide() {
    let guide = read("docs/lockctl.md");
    let codes: Vec<_> = read("recipes-cli/src/exit.rs")
        .lines()
        .filter_map(|line| {
            let (_, code) = line.split_once(": u8 = ")?;
            Some(code.trim_end_matches(';').to_owned())
        })
        .collect();
    assert!(codes.len() >= 8, "{codes:?}");
    for code in codes {
        let rows = [
            format!("\n| {code} |"),
            format!("\n| {code}, "),
            format!(", {code} |"),
            format!("\n| {code} + n |"),
        ];
        assert!(rows.iter().any(|it| guide.contains(it)), "{code}");
    }
}

/// The pages in a folder and below it.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages.extend(self::pages(&path));
        } else if path.extension().is_some_and(|it| it == "md") {
            pages.push(path);
        }
    }
    pages
}

#[test]
fn every_file_that_a_page_links_to_exists() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut pages = pages(&root.join("docs"));
    let others = [
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "tests/README.md",
        "tests/zoo/README.md",
    ];
    pages.extend(others.map(|it| root.join(it)));
    let mut count = 0;
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for after in text.split("](").skip(1) {
            let target = after.split([')', '#', ' ']).next().unwrap();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let file = page.parent().unwrap().join(target);
            assert!(file.exists(), "{}: {target}", page.display());
            count += 1;
        }
    }
    assert!(count > 100, "{count}");
}

/// The names in an array of a shell script: `name=(one two)`.
fn array(script: &str, name: &str) -> Vec<String> {
    let rest = script.split_once(&format!("\n{name}=(")).unwrap().1;
    let names = rest.split_once(')').unwrap().0;
    names.split_whitespace().map(str::to_owned).collect()
}

/// `scripts/quick` refuses to start a server, and `scripts/test` runs the same programs in the same way.
/// So a command that is said to need none is one of `scripts/quick`, or of the core's unit tests.
#[test]
fn commands_without_a_server_are_those_that_can_start_none() {
    let runner = read("scripts/runner");
    let mut programs = array(&runner, "in_memory");
    programs.push("simulation".to_owned());
    let mut told = Vec::new();
    for row in read("tests/README.md")
        .lines()
        .filter(|it| it.starts_with('|'))
    {
        if let Some((_, command)) = row.split_once("`scripts/quick ") {
            let program = command.split_once('`').unwrap().0.to_owned();
            assert!(row.contains(&format!("| `{program}` |")), "{row}");
            told.push(program);
        }
    }
    told.sort_unstable();
    programs.sort_unstable();
    assert_eq!(told, programs);
    let contributing = read("CONTRIBUTING.md");
    let fast = contributing.split_once("## The fast loop").unwrap().1;
    let commands = fast.split("```").nth(1).unwrap();
    for command in commands.lines().skip(1) {
        let is_quick = command.contains("scripts/quick");
        assert!(
            is_quick || command.starts_with("cargo test -p recipes-core "),
            "{command}"
        );
    }
}
