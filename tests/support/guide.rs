//! Blocks of the operators' guides, for tests that carry them out. A comment with a name stands before each.

use std::fs;
use std::path::Path;

pub(crate) fn block(guide: &str, name: &str) -> String {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operating"));
    let text = fs::read_to_string(folder.join(guide)).unwrap();
    let (_, after) = text.split_once(&format!("<!-- test: {name} -->")).unwrap();
    let block = after.split("```").nth(1).unwrap();
    let (_language, block) = block.split_once('\n').unwrap();
    block.trim().to_owned()
}
