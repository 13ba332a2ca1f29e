//! The style rules that a test can check: dependencies between layers, sizes, and unwanted words.
//!
//! A failure contains the file, the line and the rule. CONTRIBUTING.md explains the reasons for the rules.

mod bounds;
#[cfg(unix)]
mod checks;
mod circles;
mod english;
mod open_types;
mod public_api;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The layers on which each layer of `fake-apiserver/src` may depend. A new layer needs a new row.
const SERVER_ARROWS: &[(&str, &[&str])] = &[
    // layers that a request passes through, from top to bottom
    (
        "endpoints",
        &["api", "faults", "registry", "storage", "watch", "entropy", "journal"],
    ),
    ("faults", &["api", "entropy"]),
    ("registry", &["api", "storage", "watch", "entropy"]),
    ("watch", &["api", "storage"]),
    ("storage", &["api"]),
    ("api", &[]),
    // layers next to the path of a request
    ("egress", &["api", "registry"]),
    ("workers", &["api", "registry", "watch", "storage", "entropy", "tasks"]),
    ("journal", &["api", "entropy"]),
    ("entropy", &[]),
    ("tasks", &[]),
    // layers around the path of a request
    ("trace", &["api", "endpoints", "server", "world"]),
    ("connect", &["api", "control", "endpoints", "serve", "server"]),
    (
        "builder",
        &[
            "api",
            "boot",
            "endpoints",
            "entropy",
            "options",
            "registry",
            "server",
            "snapshot",
            "tls",
            "egress",
            "workers",
        ],
    ),
    (
        "boot",
        &["api", "entropy", "options", "registry", "server", "storage", "workers"],
    ),
    (
        "server",
        &[
            "api",
            "endpoints",
            "faults",
            "registry",
            "storage",
            "watch",
            "egress",
            "workers",
            "journal",
            "entropy",
            "options",
            "snapshot",
            "tasks",
        ],
    ),
    ("options", &["api", "endpoints", "registry", "egress", "workers"]),
    ("snapshot", &["registry", "storage"]),
    ("client", &["api", "serve", "server"]),
    ("client_service", &["api", "serve", "server"]),
    ("replica", &["server", "watch"]),
    ("serve", &["api", "endpoints", "tasks", "tls", "kubeconfig"]),
    ("tls", &["api", "kubeconfig"]),
    ("kubeconfig", &[]),
    ("load", &["api", "endpoints"]),
    (
        "world",
        &[
            "api",
            "endpoints",
            "faults",
            "load",
            "registry",
            "server",
            "snapshot",
            "storage",
        ],
    ),
    (
        "control",
        &[
            "endpoints",
            "faults",
            "load",
            "server",
            "snapshot",
            "trace",
            "workers",
            "world",
        ],
    ),
    ("expressions", &["api", "endpoints", "registry"]),
    ("bench", &["api", "registry", "server", "watch"]),
];

/// The rooms (folders) on which each room of `fake-apiserver/src/registry` may depend, lowest first. The files next to
/// the rooms implement the verbs and may depend on all rooms; rooms may depend on `request`.
const REGISTRY_ARROWS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("cel", &["types"]),
    ("patch", &["types"]),
    ("managed_fields", &["types", "patch"]),
    ("kinds", &["types", "cel"]),
    ("custom", &["types", "cel", "kinds"]),
    ("scheme", &["types", "patch", "kinds", "custom"]),
    ("webhook", &["types"]),
    ("request", &["types", "managed_fields", "scheme"]),
    ("reader", &["types", "kinds", "custom", "scheme", "webhook", "request"]),
    ("writer", &["scheme", "reader"]),
    (
        "authorization",
        &["types", "managed_fields", "scheme", "request", "reader", "writer"],
    ),
    (
        "admission",
        &[
            "types",
            "cel",
            "patch",
            "managed_fields",
            "kinds",
            "scheme",
            "webhook",
            "request",
            "reader",
            "writer",
            "authorization",
        ],
    ),
];

/// Words that only some layers of `fake-apiserver/src` may use.
const SERVER_WORDS: &[(&str, &[&str])] = &[
    ("axum::", &["connect", "control"]),
    (
        "axum_core::",
        &[
            "builder",
            "connect",
            "endpoints",
            "server",
            "client",
            "client_service",
            "serve",
            "egress",
        ],
    ),
    ("hyper::", &["serve", "egress"]),
    ("kube::", &["client"]),
    ("k8s_openapi::", &["client"]),
    ("tokio::spawn", &["tasks"]),
    ("task::spawn", &["tasks"]),
    (
        "time::sleep",
        &["endpoints", "faults", "main", "registry", "serve", "watch", "workers"],
    ),
    ("JoinSet", &["tasks"]),
    ("thread::spawn", &[]),
    ("thread::sleep", &[]),
    ("SystemTime::now", &["entropy", "main"]),
    // use tokio's clock: the standard library's clock does not stop with a paused runtime
    ("std::time::Instant", &[]),
    (
        "tokio::",
        &[
            "endpoints",
            "faults",
            "registry",
            "watch",
            "workers",
            "client",
            "entropy",
            "main",
            "serve",
            "server",
            "tasks",
            "egress",
            "bench",
        ],
    ),
    ("Timestamp::now", &[]),
];

/// Crates on which a crate may not depend.
const CRATE_WORDS: &[(&str, &[&str])] = &[
    ("fake-apiserver", &["informer::", "testkit::"]),
    ("informer", &["fake_apiserver", "testkit::"]),
    ("testkit", &["informer::"]),
];

/// Calls that stop the program, which a library must not contain.
const STOPS: &[&str] = &[".unwrap()", ".unwrap_err()", "todo!(", "unimplemented!(", "dbg!("];

/// Question words. No block of documentation or comments may begin with one of them.
const QUESTIONS: &[&str] = &["What", "Who", "Whose", "Whom", "Whether", "How"];

/// Maximum length of a file, in lines of code without tests; generated files may be longer.
const FILE_LINES: usize = 500;

/// Maximum length of a `mod.rs`, which only gives an overview and contains shared definitions.
const MOD_LINES: usize = 150;

/// Maximum length of a line. A line with a string may be longer, because messages are not split.
const LINE_CHARS: usize = 120;

/// The mark of a generated file, within its first lines.
const GENERATED: &str = "@generated";

#[test]
fn server_layers_only_depend_on_lower_layers() {
    let arrows: BTreeMap<_, _> = SERVER_ARROWS.iter().copied().collect();
    let mut faults = Faults::default();
    for source in sources("fake-apiserver/src") {
        let layer = source.layer();
        if layer == "lib" || layer == "main" {
            continue;
        }
        let Some(allowed) = arrows.get(layer) else {
            faults.add(&source, 1, &format!("the layer `{layer}` has no row in SERVER_ARROWS"));
            continue;
        };
        for (number, named) in source.named_layers() {
            if named != layer && arrows.contains_key(named.as_str()) && !allowed.contains(&named.as_str()) {
                faults.add(&source, number, &format!("`{layer}` must not refer to `{named}`"));
            }
        }
    }
    faults.assert_none();
}

#[test]
fn registry_modules_only_depend_on_lower_modules() {
    let arrows: BTreeMap<_, _> = REGISTRY_ARROWS.iter().copied().collect();
    let mut faults = Faults::default();
    for source in sources("fake-apiserver/src/registry") {
        let Some(allowed) = arrows.get(source.parts()[1].trim_end_matches(".rs")) else {
            continue;
        };
        let room = source.parts()[1].trim_end_matches(".rs").to_owned();
        for (number, named) in source.named_below(&["registry"]) {
            if named != room && !allowed.contains(&named.as_str()) {
                faults.add(
                    &source,
                    number,
                    &format!("`registry/{room}` must not refer to `{named}`"),
                );
            }
        }
    }
    faults.assert_none();
}

#[test]
fn server_terms_only_occur_in_their_layers() {
    let mut faults = Faults::default();
    for source in sources("fake-apiserver/src") {
        for (word, homes) in SERVER_WORDS {
            if !homes.contains(&source.layer()) {
                faults.add_lines(&source, word, &format!("`{word}` is only permitted in {homes:?}"));
            }
        }
    }
    faults.assert_none();
}

#[test]
fn crates_do_not_refer_to_forbidden_crates() {
    let mut faults = Faults::default();
    for (name, words) in CRATE_WORDS {
        for source in sources(&format!("{name}/src")) {
            for word in *words {
                faults.add_lines(&source, word, &format!("`{name}` must not refer to `{word}`"));
            }
        }
    }
    faults.assert_none();
}

#[test]
fn informer_only_uses_the_clock_of_tokio() {
    let mut faults = Faults::default();
    for source in sources("informer/src") {
        // This file reads the time of day, which is only written into objects.
        if source.layer() == "clock" {
            continue;
        }
        for word in [
            "SystemTime::now",
            "std::time::Instant",
            "Timestamp::now",
            "thread::sleep",
        ] {
            faults.add_lines(&source, word, &format!("`{word}` would break virtual time"));
        }
    }
    faults.assert_none();
}

#[test]
fn libraries_do_not_unwrap() {
    let mut faults = Faults::default();
    for source in library_sources() {
        for word in STOPS {
            faults.add_lines(
                &source,
                word,
                &format!("`{word}` outside tests: use `expect` and say why it cannot be"),
            );
        }
    }
    faults.assert_none();
}

#[test]
fn files_are_short_and_begin_with_a_sentence() {
    let mut faults = Faults::default();
    for source in library_sources() {
        if source.is_generated() {
            continue;
        }
        if !source.text.starts_with("//!") {
            faults.add(&source, 1, "the first line is no `//!` sentence");
        }
        let bound = if source.path.ends_with("mod.rs") {
            MOD_LINES
        } else {
            FILE_LINES
        };
        let length = source.code.iter().filter(|line| !line.trim().is_empty()).count();
        if length > bound {
            faults.add(
                &source,
                1,
                &format!("{length} lines of code exceed the maximum of {bound}"),
            );
        }
        for (index, line) in source.text.lines().enumerate() {
            if line.chars().count() > LINE_CHARS && !line.contains('"') {
                faults.add(&source, index + 1, &format!("longer than {LINE_CHARS} characters"));
            }
        }
    }
    faults.assert_none();
}

#[test]
fn comments_do_not_begin_with_a_question_word() {
    let mut faults = Faults::default();
    let mut files = Vec::new();
    find_files(&root(), &["rs"], &mut files);
    for source in files.into_iter().map(Source::read) {
        for (number, word) in first_words(&source.text) {
            if QUESTIONS.contains(&word) {
                let what = format!("a comment begins with `{word}`: begin with the thing, or with the verb");
                faults.add(&source, number, &what);
            }
        }
    }
    faults.assert_none();
}

/// Returns the first word of each block of documentation or comments, with its line.
fn first_words(text: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let mut before = None;
    for (index, line) in text.lines().map(str::trim_start).enumerate() {
        let mark = ["///", "//!", "//"].into_iter().find(|mark| line.starts_with(mark));
        if let Some(mark) = mark
            && before != Some(mark)
        {
            let word = line[mark.len()..].split_whitespace().next().unwrap_or_default();
            words.push((index + 1, word));
        }
        before = mark;
    }
    words
}

#[test]
fn cited_rules_are_in_the_list_of_rules() {
    let text = fs::read_to_string(root().join("fake-apiserver/docs/rules.md")).expect("the list of rules exists");
    let known: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| Some(line.strip_prefix("- **")?.split_once("**")?.0))
        .collect();
    assert!(known.len() > 250, "the list of rules has {} rules", known.len());
    let mut faults = Faults::default();
    let mut files = Vec::new();
    find_files(&root(), &["rs", "md"], &mut files);
    for file in files {
        let source = Source::read(file);
        for (index, line) in source.text.lines().enumerate() {
            for rule in cited_rules(line) {
                if !known.contains(rule.as_str()) {
                    faults.add(
                        &source,
                        index + 1,
                        &format!("rule {rule} is not in fake-apiserver/docs/rules.md"),
                    );
                }
            }
        }
    }
    faults.assert_none();
}

/// Returns the rules that a line cites: `rule A1`, `rules A1, B2 and C3`, or the name of a test such as `fn b14_…`.
fn cited_rules(line: &str) -> Vec<String> {
    let mut cited = Vec::new();
    for (at, _) in line.match_indices("rule") {
        let rest = line[at + 4..].trim_start_matches('s');
        let words = rest.split([' ', ',', ')', '.', ';', ':', '`']);
        let words = words.filter(|it| !it.is_empty() && !matches!(*it, "and" | "or" | "to"));
        cited.extend(words.map_while(|word| is_rule(word).then(|| word.to_owned())));
    }
    if let Some((_, name)) = line.split_once("fn ")
        && let Some((rule, _)) = name.split_once('_')
        && rule.starts_with(|it| ('a'..='u').contains(&it))
        && is_rule(&rule.to_uppercase())
    {
        cited.push(rule.to_uppercase());
    }
    cited
}

/// Returns `true` for a capital followed by a number.
fn is_rule(word: &str) -> bool {
    let number = word.strip_prefix(|it: char| it.is_ascii_uppercase());
    number.is_some_and(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit()))
}

#[test]
fn files_do_not_contain_paths_of_a_single_machine() {
    // Split into two halves, so that this file does not contain the words itself.
    let words = [
        ["/ho", "me/"],
        ["/ro", "ot/"],
        ["/wo", "rk/"],
        ["/tm", "p/"],
        ["/Use", "rs/"],
        ["C:", "\\"],
    ]
    .map(|halves| halves.concat());
    let mut faults = Faults::default();
    let mut files = Vec::new();
    find_files(&root(), &["rs", "md", "toml", "yaml", "yml", "sh", "py"], &mut files);
    for file in files {
        let source = Source::read(file);
        for (index, line) in source.text.lines().enumerate() {
            if let Some(word) = words.iter().find(|word| line.contains(word.as_str())) {
                faults.add(&source, index + 1, &format!("a path of one machine: {word}"));
            }
        }
    }
    faults.assert_none();
}

/// Violations, reported together.
#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn add(&mut self, source: &Source, line: usize, what: &str) {
        self.0.push(format!("{}:{line}: {what}", source.path));
    }

    /// Adds a violation for each line of code that contains `word` at the start of a word.
    fn add_lines(&mut self, source: &Source, word: &str, what: &str) {
        for (index, line) in source.code.iter().enumerate() {
            if contains_word(line, word) {
                self.add(source, index + 1, what);
            }
        }
    }

    #[track_caller]
    fn assert_none(&self) {
        assert!(self.0.is_empty(), "\n{}\n", self.0.join("\n"));
    }
}

/// Returns `true` if `word` occurs in `line` and is not the end of a longer name.
fn contains_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !word.starts_with(|it: char| it.is_alphanumeric())
            || !before.is_some_and(|it| it.is_alphanumeric() || it == '_')
    })
}

/// A source file.
struct Source {
    /// The path within the workspace, with `/` between the folders.
    path: String,
    text: String,
    /// The lines with comments, strings and test modules blanked.
    code: Vec<String>,
}

impl Source {
    fn read(file: PathBuf) -> Self {
        let text = fs::read_to_string(&file).unwrap_or_else(|err| panic!("{}: {err}", file.display()));
        let path = file
            .strip_prefix(root())
            .unwrap_or(&file)
            .to_string_lossy()
            .replace('\\', "/");
        let code = without_tests(&without_comments_and_strings(&text));
        Self { path, text, code }
    }

    /// Returns the path within `src`: `["storage", "store.rs"]`.
    fn parts(&self) -> Vec<&str> {
        let (_, within) = self.path.split_once("/src/").unwrap_or(("", &self.path));
        within.split('/').collect()
    }

    /// Returns the first folder within `src`, or the file's name.
    fn layer(&self) -> &str {
        self.parts()[0].trim_end_matches(".rs")
    }

    fn is_generated(&self) -> bool {
        self.text.lines().take(5).any(|line| line.contains(GENERATED))
    }

    /// Returns each layer that the code of this file refers to by `crate::layer` or by a sequence of `super::`, with
    /// the line.
    fn named_layers(&self) -> Vec<(usize, String)> {
        self.named_below(&[])
    }

    /// Same as `named_layers`, for items in the folders that contain this file.
    fn named_below(&self, folder: &[&str]) -> Vec<(usize, String)> {
        let parts = self.parts();
        let depth = parts.len() - folder.len() - usize::from(self.path.ends_with("/mod.rs"));
        let code = self.code.join("\n");
        let by_name: String = folder.iter().map(|part| format!("{part}::")).collect();
        let by_name = format!("crate::{by_name}");
        let to_the_root = "super::".repeat(depth);
        let mut named = Vec::new();
        for root in [by_name.as_str(), to_the_root.as_str()] {
            for (at, _) in code.match_indices(root) {
                let line = code[..at].matches('\n').count() + 1;
                let names = first_names(&code[at + root.len()..]);
                named.extend(names.into_iter().map(|name| (line, name)));
            }
        }
        named
    }
}

/// Returns the first name of a path, or the first names of each path in braces.
fn first_names(code: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        text.trim_start()
            .chars()
            .take_while(|it| it.is_alphanumeric() || *it == '_')
            .collect()
    };
    let Some(group) = code.strip_prefix('{') else {
        return vec![name(code)];
    };
    let mut names = vec![name(group)];
    let mut depth = 1;
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => names.push(name(&group[at + 1..])),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

/// Returns the source with every comment, string and character literal blanked. Line numbers do not change.
fn without_comments_and_strings(text: &str) -> String {
    let mut rest = text;
    let mut code = String::with_capacity(text.len());
    while let Some(first) = rest.chars().next() {
        let length = literal_length(rest);
        if length == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            // A name may only end in `r` or `b` before a quote if this letter is the literal's own prefix.
            if first.is_alphanumeric() || first == '_' {
                let end = rest
                    .find(|it: char| !(it.is_alphanumeric() || it == '_'))
                    .unwrap_or(rest.len());
                code.push_str(&rest[..end]);
                rest = &rest[end..];
            }
        } else {
            code.extend(rest[..length].chars().map(|it| if it == '\n' { '\n' } else { ' ' }));
            rest = &rest[length..];
        }
    }
    code
}

/// Returns the length of the comment or literal that `text` starts with; 0 if it starts with neither.
fn literal_length(text: &str) -> usize {
    let until = |from: usize, end: &str| text[from..].find(end).map_or(text.len(), |at| from + at + end.len());
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return until(2, "*/");
    }
    let prefix = text.find(|it| !matches!(it, 'b' | 'c' | 'r')).unwrap_or(text.len());
    let body = &text[prefix..];
    if text[..prefix].ends_with('r') {
        let hashes = body.find(|it| it != '#').unwrap_or(0);
        if body[hashes..].starts_with('"') {
            return until(prefix + hashes + 1, &format!("\"{}", "#".repeat(hashes)));
        }
    } else if body.starts_with('"') {
        return prefix + quoted_length(body);
    } else if prefix == 0 && body.starts_with('\'') {
        return character_length(body);
    }
    0
}

/// Returns the length of a string literal, with its quotes.
fn quoted_length(text: &str) -> usize {
    let mut escaped = true;
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of a character literal, with its quotes; 0 for a lifetime.
fn character_length(text: &str) -> usize {
    let inner = &text[1..];
    if let Some(escape) = inner.strip_prefix('\\') {
        let skip = escape.chars().next().map_or(0, char::len_utf8);
        return escape[skip..].find('\'').map_or(0, |at| 2 + skip + at + 1);
    }
    let letter = inner.chars().next().map_or(0, char::len_utf8);
    if inner[letter..].starts_with('\'') {
        2 + letter
    } else {
        0
    }
}

/// Returns the lines, with each item after `#[cfg(test)]` blanked.
fn without_tests(code: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut depth = 0_i32;
    let mut skipping = false;
    for line in code.lines() {
        if line.trim_start().starts_with("#[cfg(test)]") {
            (skipping, depth) = (true, 0);
        }
        lines.push(if skipping { String::new() } else { line.to_owned() });
        let opened = line.matches('{').count();
        depth += i32::try_from(opened).unwrap_or(0) - i32::try_from(line.matches('}').count()).unwrap_or(0);
        let ends = depth == 0 && (line.contains('}') || line.trim_end().ends_with(';'));
        skipping = skipping && !ends;
    }
    lines
}

fn library_sources() -> Vec<Source> {
    let mut all = Vec::new();
    for name in ["fake-apiserver", "informer", "testkit"] {
        all.extend(sources(&format!("{name}/src")));
    }
    all
}

/// Reads the Rust files below a folder of the workspace, in order, without files that only contain tests.
fn sources(folder: &str) -> Vec<Source> {
    let mut files = Vec::new();
    find_files(&root().join(folder), &["rs"], &mut files);
    assert!(!files.is_empty(), "{folder} has no source files");
    files.retain(|file| {
        let mut names = file
            .strip_prefix(root())
            .unwrap_or(file)
            .iter()
            .filter_map(|it| it.to_str());
        !names.any(|name| name == "tests" || name.ends_with("tests.rs"))
    });
    files.into_iter().map(Source::read).collect()
}

/// Finds files with one of these extensions below a folder, in order, without build output and hidden files.
fn find_files(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|err| panic!("{}: {err}", folder.display()));
    let mut paths: Vec<_> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                find_files(&path, extensions, found);
            }
        } else if extensions
            .iter()
            .any(|it| path.extension().is_some_and(|extension| extension == *it))
        {
            found.push(path);
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .expect("the crate is in the workspace")
}

/// Tests of the functions that read source files.
mod reader {
    use super::*;

    #[test]
    fn comments_strings_and_characters_are_blanked() {
        let code = without_comments_and_strings("a(\"x // \\\" y\"); // c\nb('\"', 'c, r#\"\"\"#) /* d\n */ e");
        let words: Vec<_> = code.split_whitespace().collect();
        assert_eq!(words.join(" "), "a( ); b( , 'c, ) e");
        assert_eq!(code.lines().count(), 3);
    }

    #[test]
    fn test_modules_are_blanked() {
        let code = without_tests("a\n#[cfg(test)]\nmod tests {\n b {}\n}\nc\n#[cfg(test)]\nuse d;\ne");
        assert_eq!(code.join("|"), "a|||||c|||e");
    }

    #[test]
    fn first_names_of_a_use_group_are_found() {
        assert_eq!(first_names("a::b;"), ["a"]);
        assert_eq!(first_names("{a, b::{c, d}, e::f};"), ["a", "b", "e"]);
    }

    #[test]
    fn rules_are_cited_singly_in_lists_and_by_test_names() {
        assert_eq!(
            cited_rules("// goes at once (rules B13, B16 and J1), as rule R4."),
            ["B13", "B16", "J1", "R4"]
        );
        assert_eq!(cited_rules("fn o4_invalid_rules_are_refused() {"), ["O4"]);
        assert!(cited_rules("a rule of RBAC; fn v2_document(&self); the rules are").is_empty());
    }

    #[test]
    fn first_word_of_each_comment_block_is_found() {
        let words = first_words("//! Whole\n//! How\n\n/// What\n/// Who\nfn a() {}\n    // Whether\n    // How\n");
        assert_eq!(words, [(1, "Whole"), (4, "What"), (7, "Whether")]);
    }

    #[test]
    fn suffix_of_a_word_does_not_match_the_word() {
        assert!(contains_word("use kube::Client", "kube::"));
        assert!(!contains_word("use fake_kube::Client", "kube::"));
        assert!(contains_word("a.unwrap()", ".unwrap()"));
    }

    #[test]
    fn paths_from_crate_and_super_refer_to_layers() {
        let source = |path: &str, code: &str| Source {
            path: path.to_owned(),
            text: String::new(),
            code: vec![code.to_owned()],
        };
        let names = |source: Source| {
            source
                .named_layers()
                .into_iter()
                .map(|(_, name)| name)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names(source("x/src/a/b.rs", "use super::c; use super::super::d;")),
            ["d"]
        );
        assert_eq!(names(source("x/src/a/mod.rs", "use super::d;")), ["d"]);
        assert_eq!(names(source("x/src/a.rs", "use crate::{b, c::d};")), ["b", "c"]);
    }
}
