//! Counts words and phrases that make doc comments and guides hard to read. The counts must not increase.
//!
//! Each line of `english.txt` consists of a crate, a pattern and the permitted number per 1,000 words. After texts have
//! been improved, `DRYDOCK_ENGLISH=write cargo test -p drydock-testkit --test it english` lowers the numbers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use super::{Source, find_files, root, sources};

/// The permitted numbers.
const BASELINE: &str = "testkit/tests/it/tidy/english.txt";

/// Environment variable for rewriting the file instead of comparing it.
const WRITE: &str = "DRYDOCK_ENGLISH";

/// Maximum number of occurrences that a failure lists.
const SHOWN: usize = 30;

/// Margin above the counts, per 1,000 words, so that the deletion of another line does not fail the test.
const ROOM: f64 = 0.1;

/// A pattern: its name in the file, the remedy, and the function that recognises it at the start of a list of words.
struct Pattern {
    name: &'static str,
    remedy: &'static str,
    is_here: fn(&[Word<'_>]) -> bool,
}

const PATTERNS: &[Pattern] = &[
    Pattern {
        name: "minds",
        remedy: "code has, contains, returns, checks; it does not know, say, tell, ask, mind, see or want",
        is_here: |words| {
            [
                "know", "knows", "known", "say", "says", "said", "tell", "tells", "told", "ask", "asks", "asked",
                "mind", "minds", "sees", "saw", "seen", "want", "wants", "wanted",
            ]
            .contains(&words[0].text)
        },
    },
    Pattern {
        name: "what",
        remedy: "name the noun: \"generated names\", not \"what was handed out\"",
        is_here: |words| matches!(words[0].text, "what" | "whatever"),
    },
    Pattern {
        name: "those-of",
        remedy: "repeat the noun: \"the limits of kube-apiserver\", not \"those of the real one\"",
        is_here: |words| {
            let [first, second, third] = texts(words);
            matches!((first, second), ("those", "of" | "that" | "which" | "in" | "with"))
                || matches!((first, second, third), ("the", "one" | "ones", "that" | "of" | "which"))
                || matches!((first, second), ("that", "of"))
        },
    },
    Pattern {
        name: "where",
        remedy: "write if, when, in which or for which: \"where\" is for places",
        is_here: |words| words[0].text == "where",
    },
    Pattern {
        name: "is-no",
        remedy: "be positive and active: \"does nothing if\", \"ignores\", not \"makes none\"",
        is_here: |words| {
            let [first, second, _] = texts(words);
            matches!(first, "none")
                || matches!(
                    (first, second),
                    (
                        "is" | "are" | "has" | "have" | "makes" | "make" | "was" | "were",
                        "no" | "nothing"
                    )
                )
        },
    },
    Pattern {
        name: "whose",
        remedy: "use a second sentence instead of \"of which\", \"whose\" and \"who\"",
        is_here: |words| {
            let [first, second, _] = texts(words);
            matches!(first, "whose" | "who" | "whom" | "whoever") || (first, second) == ("of", "which")
        },
    },
    Pattern {
        name: "stands",
        remedy: "code and data do not stand, lie, go or come: is, has, contains, arrives, returns",
        is_here: |words| {
            matches!(
                words[0].text,
                "stand" | "stands" | "lie" | "lies" | "goes" | "comes" | "came"
            )
        },
    },
    Pattern {
        name: "alone",
        remedy: "\"only\" before the noun; \"next to\"; \"Maximum number of\" for a limit",
        is_here: |words| {
            matches!(words[0].text, "alone" | "beside") || (words[0].text == "Most" && words[0].starts_sentence)
        },
    },
];

#[test]
fn patterns_of_unidiomatic_english_do_not_become_more_frequent() {
    let found = texts_of_all().into_iter().map(|(name, text)| (name, count(&text)));
    let found: BTreeMap<_, _> = found.collect();
    let file = root().join(BASELINE);
    if std::env::var(WRITE).is_ok_and(|it| it == "write") {
        fs::write(&file, print(&found)).expect("the file is writable");
    }
    let permitted = fs::read_to_string(&file).expect("the file of permitted numbers exists");
    let permitted: BTreeMap<(&str, &str), f64> = permitted.lines().map(read_line).collect();
    let mut failures = String::new();
    for (name, counts) in &found {
        for pattern in PATTERNS {
            let occurrences = &counts.found[pattern.name];
            let most = permitted.get(&(*name, pattern.name)).copied().unwrap_or_default();
            let rate = counts.rate(pattern);
            if rate > most {
                let _ = writeln!(
                    failures,
                    "{name}: `{}` occurs {rate:.2} times in 1,000 words, {most:.1} are permitted: {}",
                    pattern.name, pattern.remedy
                );
                for line in occurrences.iter().rev().take(SHOWN) {
                    let _ = writeln!(failures, "  {line}");
                }
            }
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

/// The number of words, and the occurrences of each pattern in them.
struct Counts {
    words: usize,
    found: BTreeMap<&'static str, Vec<String>>,
}

impl Counts {
    fn rate(&self, pattern: &Pattern) -> f64 {
        self.found[pattern.name].len() as f64 * 1_000.0 / self.words.max(1) as f64
    }
}

/// Path, line and text of a paragraph.
type Paragraph = (String, usize, String);

/// Returns the paragraphs of each crate, and of the guides.
fn texts_of_all() -> BTreeMap<&'static str, Vec<Paragraph>> {
    let mut all = BTreeMap::new();
    for name in ["fake-apiserver", "informer", "testkit"] {
        let sources = sources(&format!("{name}/src"));
        let documentation = sources.iter().filter(|it| !it.is_generated()).flat_map(|it| {
            let lines = documentation(&it.text);
            lines.into_iter().map(|(line, text)| (it.path.clone(), line, text))
        });
        all.insert(name, documentation.collect());
    }
    let mut files = Vec::new();
    find_files(&root(), &["md"], &mut files);
    let guides = files
        .into_iter()
        .map(Source::read)
        .filter(|it| !it.path.ends_with("CHANGELOG.md"));
    let guides = guides.flat_map(|it| {
        let lines: Vec<_> = it.text.lines().enumerate().map(|(at, text)| (at + 1, text)).collect();
        let paragraphs = paragraphs(&lines);
        paragraphs
            .into_iter()
            .map(move |(line, text)| (it.path.clone(), line, text))
    });
    all.insert("guides", guides.collect());
    all
}

/// Returns the paragraphs of the doc comments of a file.
fn documentation(source: &str) -> Vec<(usize, String)> {
    let lines = source.lines().enumerate().map(|(at, line)| {
        let line = line.trim_start();
        let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        (at + 1, text.unwrap_or_default())
    });
    paragraphs(&lines.collect::<Vec<_>>())
}

/// Joins consecutive lines of text, without code and HTML comments.
fn paragraphs(lines: &[(usize, &str)]) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut in_code, mut is_open) = (false, false);
    for (number, line) in lines {
        let line = line.trim();
        let is_fence = line.starts_with("```");
        in_code ^= is_fence;
        if in_code || is_fence || line.is_empty() {
            is_open = false;
            continue;
        }
        let starts = line.starts_with(['#', '|', '-', '*', '>']);
        match found.last_mut() {
            Some((_, text)) if is_open && !starts => {
                text.push(' ');
                text.push_str(line);
            }
            _ => found.push((*number, line.to_owned())),
        }
        is_open = true;
    }
    found
}

fn count(texts: &[Paragraph]) -> Counts {
    let mut counts = Counts {
        words: 0,
        found: PATTERNS.iter().map(|it| (it.name, Vec::new())).collect(),
    };
    for (path, line, text) in texts {
        let text = without_code(text);
        let words = words(&text);
        counts.words += words.len();
        for at in 0..words.len() {
            for pattern in PATTERNS.iter().filter(|it| (it.is_here)(&words[at..])) {
                let shown: String = text.chars().take(100).collect();
                let found = counts.found.entry(pattern.name).or_default();
                found.push(format!("{path}:{line}: {shown}"));
            }
        }
    }
    counts
}

/// Returns the text with inline code and the targets of links blanked.
fn without_code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let prose: String = parts.map(|(at, part)| if at % 2 == 0 { part } else { " x " }).collect();
    let mut left = String::with_capacity(prose.len());
    let mut rest = prose.as_str();
    while let Some((before, after)) = rest.split_once("](") {
        left.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    left + rest
}

/// A word and whether a sentence begins with it.
#[derive(Clone, Copy, Debug)]
struct Word<'a> {
    text: &'a str,
    starts_sentence: bool,
}

fn words(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut starts_sentence = true;
    for part in text.split_whitespace() {
        let text = part.trim_matches(|it: char| !it.is_alphanumeric());
        if !text.is_empty() {
            words.push(Word { text, starts_sentence });
            starts_sentence = false;
        }
        starts_sentence |= part.ends_with(['.', ':', '|']);
    }
    words
}

/// Returns the first three words, padded with empty strings.
fn texts<'a>(words: &[Word<'a>]) -> [&'a str; 3] {
    std::array::from_fn(|at| words.get(at).map_or("", |it| it.text))
}

/// Formats these counts as the lines of the file. Numbers are rounded up to a tenth, with a margin for a few
/// occurrences.
fn print(found: &BTreeMap<&str, Counts>) -> String {
    let mut lines = String::new();
    for (name, counts) in found {
        for pattern in PATTERNS {
            let rate = (counts.rate(pattern) * 10.0).ceil() / 10.0 + ROOM;
            let _ = writeln!(lines, "{name} {} {rate:.1}", pattern.name);
        }
    }
    lines
}

fn read_line(line: &str) -> ((&str, &str), f64) {
    let parts: Vec<_> = line.split(' ').collect();
    match parts[..] {
        [name, pattern, most] => ((name, pattern), most.parse().expect("the third word is a number")),
        _ => panic!("{BASELINE}: a line has three words, not \"{line}\""),
    }
}

#[test]
fn patterns_are_only_recognised_in_prose() {
    let found = |text: &str| {
        let counts = count(&[(String::new(), 1, text.to_owned())]);
        let found = counts.found.into_iter().filter(|(_, it)| !it.is_empty());
        found.map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(found("Returns what the server says."), ["minds", "what"]);
    assert_eq!(found("Most keys of a request"), ["alone"]);
    assert_eq!(
        found("At most 10 of the keys; see [`where`](what.md)"),
        Vec::<&str>::new()
    );
    assert_eq!(
        found("The limits are those of the real one, whose log is no log."),
        ["is-no", "those-of", "whose"]
    );
    assert_eq!(
        documentation("/// One\n/// two\n///\n/// ```\n/// what\n/// ```\nfn what() {}\n//! three"),
        [(1, "One two".to_owned()), (8, "three".to_owned())]
    );
}
