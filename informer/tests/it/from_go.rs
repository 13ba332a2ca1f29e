//! Checks that the tests named in the guide for client-go users exist.

use std::fs;
use std::path::Path;

/// Searches `folder` for files whose name without extension is `file`, and appends their contents to `found`.
fn functions(folder: &Path, file: &str, found: &mut String) {
    let entries = fs::read_dir(folder).expect("the directory exists");
    for entry in entries {
        let path = entry.expect("the directory entry is readable").path();
        if path.is_dir() {
            functions(&path, file, found);
        } else if path.file_stem().is_some_and(|it| it == file) {
            found.push_str(&fs::read_to_string(&path).expect("the text is UTF-8"));
        }
    }
}

#[test]
fn tests_named_in_the_client_go_table_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = fs::read_to_string(root.join("docs/client-go.md")).expect("the table exists");
    let last_columns = table
        .lines()
        // Skip the table of names, which has only two columns and does not contain tests.
        .filter(|line| line.starts_with('|') && line.matches('|').count() > 3)
        .filter_map(|line| line.trim_end_matches('|').rsplit('|').next());
    let names = last_columns.flat_map(|column| column.split('`').skip(1).step_by(2));
    let is_word = |it: &str| {
        it.chars()
            .all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_')
    };
    let tests: Vec<_> = names
        .filter_map(|it| it.split_once("::"))
        .filter(|(file, name)| is_word(file) && is_word(name) && name.len() > 12)
        .collect();
    assert!(tests.len() > 150, "{} tests are named", tests.len());
    let is_missing = |(file, name): &&(&str, &str)| {
        let mut text = String::new();
        for folder in ["tests/cache", "tests/it", "src"] {
            functions(&root.join(folder), file, &mut text);
        }
        !text.contains(&format!("fn {name}("))
    };
    let missing: Vec<_> = tests.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "these tests do not exist: {missing:?}");
}
