//! The guides cover every error with which services and tools may end.

use std::fs;
use std::path::{Path, PathBuf};

use lock_recipes::LostReason;

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
fn reasons_of_a_loss_have_their_own_words_in_the_guide() {
    let guide = read("docs/operating.md");
    for reason in [
        LostReason::DeadlinePassed,
        LostReason::SessionExpired,
        LostReason::SessionClosed,
        LostReason::NodeRemoved,
    ] {
        let row = format!("\n| `{reason:?}` | {reason} |");
        assert!(guide.contains(&row), "{row}");
    }
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

/// All pages of the repository.
pub(super) fn pages() -> Vec<PathBuf> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut pages = pages_below(&root.join("docs"));
    let others = [
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "tests/README.md",
        "tests/peers/README.md",
        "tests/zoo/README.md",
    ];
    pages.extend(others.map(|it| root.join(it)));
    pages
}

fn pages_below(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages.extend(pages_below(&path));
        } else if path.extension().is_some_and(|it| it == "md") {
            pages.push(path);
        }
    }
    pages
}

/// The fenced blocks of a page in this language.
pub(super) fn blocks(page: &str, language: &str) -> Vec<String> {
    let (mut blocks, mut within) = (Vec::new(), None::<(String, bool)>);
    for line in page.lines() {
        match (line.trim_start().strip_prefix("```"), &mut within) {
            (Some(_), Some((block, is_wanted))) => {
                if *is_wanted {
                    blocks.push(std::mem::take(block));
                }
                within = None;
            }
            (Some(word), None) => within = Some((String::new(), word == language)),
            (None, Some((block, _))) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

/// The anchors of a page's headings, as they are made on the web.
fn anchors(page: &str) -> Vec<String> {
    let headings = page.lines().filter(|it| it.starts_with('#'));
    let texts = headings.map(|it| it.trim_start_matches('#').trim().to_lowercase());
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    texts
        .map(|it| {
            it.chars()
                .filter(kept)
                .collect::<String>()
                .replace(' ', "-")
        })
        .collect()
}

#[test]
fn every_link_of_a_page_leads_to_a_file_and_a_heading() {
    let (mut files, mut headings) = (0, 0);
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for after in text.split("](").skip(1) {
            let target = after.split([')', ' ']).next().unwrap();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = match path {
                "" => page.clone(),
                path => page.parent().unwrap().join(path),
            };
            assert!(file.exists(), "{}: {target}", page.display());
            files += 1;
            if !heading.is_empty() && file.extension().is_some_and(|it| it == "md") {
                let there = anchors(&fs::read_to_string(&file).unwrap());
                let is_there = there.iter().any(|it| it == heading);
                assert!(is_there, "{}: {target}: {there:?}", page.display());
                headings += 1;
            }
        }
    }
    assert!(files > 100 && headings > 50, "{files}, {headings}");
}

/// Features that a page has a service switch on are there.
#[test]
fn features_of_every_page_exist() {
    let manifest = read("Cargo.toml");
    let features = manifest.split_once("\n[features]\n").unwrap().1;
    let features = features.split_once("\n[").unwrap().0;
    let mut count = 0;
    for page in pages() {
        for block in blocks(&fs::read_to_string(&page).unwrap(), "toml") {
            for line in block.lines().filter(|it| it.contains("lock-recipes")) {
                let Some((_, names)) = line.split_once(" features = [") else {
                    continue;
                };
                for name in names.split(']').next().unwrap().split(',') {
                    let name = name.trim().trim_matches('"');
                    assert!(features.contains(&format!("\n{name} = ")), "{line}");
                    count += 1;
                }
            }
        }
    }
    assert!(count > 0);
}

/// Scripts that a page has somebody run are there.
#[test]
fn scripts_of_every_page_exist() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut count = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for after in text.split("scripts/").skip(1) {
            let is_of_a_name = |c: char| c.is_ascii_lowercase() || c == '-';
            let end = after.find(|c| !is_of_a_name(c)).unwrap_or(after.len());
            let script = after.split_at(end).0;
            assert!(
                root.join("scripts").join(script).exists(),
                "{}: {script}",
                page.display()
            );
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
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
