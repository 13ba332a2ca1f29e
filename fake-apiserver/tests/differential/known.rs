//! `known_differences.txt`: the cases with differing responses. The list may only shrink.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential/known_differences.txt")
}

/// Returns the number of listed cases.
pub(crate) fn count() -> usize {
    let text = std::fs::read_to_string(path()).expect("the list of known differences exists");
    let is_case = |line: &&str| !line.is_empty() && !line.starts_with('#');
    text.lines().filter(is_case).count()
}

/// Fails if an unlisted case differs, or a listed case does not. `DIFFERENTIAL_UPDATE=1` removes cases that no longer
/// differ from the list, and `DIFFERENTIAL_UPDATE=all` rewrites the list. With `--nocapture`, `DIFFERENTIAL_SHOW=1`
/// prints all differing cases.
pub(crate) fn check(file: &str, different: &[(String, String)], most: usize) {
    show(file, different);
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let text = std::fs::read_to_string(path()).expect("the list of known differences exists");
    let prefix = format!("{file}/");
    let listed: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| Some(line.strip_prefix(&prefix)?.split('\t').next().unwrap_or_default()))
        .collect();
    let found: BTreeSet<&str> = different.iter().map(|(name, _)| name.as_str()).collect();

    match std::env::var("DIFFERENTIAL_UPDATE").as_deref() {
        Ok("all") => return write(&text, &prefix, different),
        Ok(_) => {
            let left: Vec<_> = different
                .iter()
                .filter(|(name, _)| listed.contains(name.as_str()))
                .cloned()
                .collect();
            return write(&text, &prefix, &left);
        }
        Err(_) => {}
    }
    let new: Vec<_> = different
        .iter()
        .filter(|(name, _)| !listed.contains(name.as_str()))
        .collect();
    let lines: Vec<String> = new
        .iter()
        .take(most)
        .map(|(name, difference)| format!("  {name}\n      {}", difference.chars().take(400).collect::<String>()))
        .collect();
    assert!(
        new.is_empty(),
        "{file}: {} responses differ from the recordings:\n{}",
        new.len(),
        lines.join("\n")
    );
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(
        gone.is_empty(),
        "{file}: {} known differences no longer occur; remove them from the list with DIFFERENTIAL_UPDATE=1: {:?}",
        gone.len(),
        &gone[..gone.len().min(most)]
    );
}

#[expect(clippy::print_stdout, reason = "somebody asked for it")]
fn show(file: &str, different: &[(String, String)]) {
    if std::env::var_os("DIFFERENTIAL_SHOW").is_some() {
        for (name, difference) in different {
            println!("{file}/{name}\n    {difference}");
        }
    }
}

/// Replaces the lines of one file. Each line contains a case and the kind of its difference.
fn write(text: &str, prefix: &str, different: &[(String, String)]) {
    let (head, body): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('#'));
    let mut lines: Vec<String> = body
        .iter()
        .filter(|it| !it.starts_with(prefix))
        .map(|it| (*it).to_owned())
        .collect();
    lines.extend(different.iter().map(|(name, difference)| {
        let nature = difference.split(':').next().unwrap_or_default();
        format!("{prefix}{name}\t{nature}")
    }));
    lines.sort();
    let text = format!("{}\n{}\n", head.join("\n"), lines.join("\n"));
    std::fs::write(path(), text).expect("the file is writable");
}
