//! Public structs and enums that cannot grow without breaking users: each is listed with the reason.

use super::{Source, library_sources};

/// Types that users may construct or match exhaustively, and the reasons why this is permitted. All other public types
/// have `#[non_exhaustive]`, a private field, or the field `_more`.
const OPEN: &[(&str, &[&str])] = &[
    (
        "the API defines all of its values or fields",
        &[
            "Attributes",
            "ConditionStatus",
            "FieldOperator",
            "FieldValidation",
            "LabelOperator",
            "Operation",
            "PatchKind",
            "PolicyRule",
            "PropagationPolicy",
            "Scope",
            "Verb",
            "VersionMatch",
            "WatchEventKind",
            "WriteKind",
        ],
    ),
    (
        "it is the identity of something, and has all parts of it",
        &[
            "ClusterKey",
            "FieldTerm",
            "GroupKind",
            "GroupResource",
            "GroupVersionKind",
            "GroupVersionResource",
            "ObjectId",
            "ResourcePath",
            "SentBy",
        ],
    ),
    (
        "it has no content",
        &["ByReference", "ForObject", "Unreachable", "cluster"],
    ),
    (
        "its values exclude each other and leave out nothing",
        &["Deletion", "Entry", "Event", "Unserved", "When"],
    ),
    // `trace::VERSION` is the version of the format.
    (
        "it is a part of the document of a trace, which the testkit writes",
        &[
            "Change", "Failure", "Group", "Log", "Mark", "Marks", "Row", "Run", "Step", "StepKind", "Tone", "Trace",
            "Version", "Written",
        ],
    ),
];

/// Files with types that are not part of the public API.
const INTERNAL: [&str; 3] = ["/main/", "src/bench.rs", "src/processes/"];

#[test]
fn public_types_are_extensible_or_have_a_reason() {
    let (mut faults, mut open) = (Vec::new(), Vec::new());
    for source in library_sources() {
        if source.is_generated() || INTERNAL.iter().any(|it| source.path.contains(it)) {
            continue;
        }
        for (line, name) in open_types(&source) {
            let is_listed = OPEN.iter().any(|(_, names)| names.contains(&name.as_str()));
            let place = format!("{}:{line}: {name} has only public parts", source.path);
            faults.extend((!is_listed).then_some(place));
            open.push(name);
        }
    }
    let listed = OPEN.iter().flat_map(|(_, names)| *names);
    let stale = listed.filter(|it| !open.iter().any(|name| name == *it));
    faults.extend(stale.map(|it| format!("{it} is listed in open_types.rs, but is not an open type")));
    assert!(
        faults.is_empty(),
        "\n{}\nAdd #[non_exhaustive], or the field `_more`, or a line to open_types.rs",
        faults.join("\n")
    );
}

/// Returns the public types that have neither `#[non_exhaustive]` nor a private or hidden field, with their lines.
fn open_types(source: &Source) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, line) in source.code.iter().enumerate() {
        let Some((is_enum, rest)) = line
            .strip_prefix("pub struct ")
            .map(|rest| (false, rest))
            .or_else(|| line.strip_prefix("pub enum ").map(|rest| (true, rest)))
        else {
            continue;
        };
        let name: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
        // Attributes may span lines, but an item before them ends with a brace or a semicolon.
        let above = source.code[..at].iter().rev();
        let mut attributes = above.take_while(|it| !it.starts_with('}') && !it.ends_with(';'));
        if attributes.any(|it| it.contains("non_exhaustive")) || (!is_enum && has_closed_part(&source.code[at..])) {
            continue;
        }
        // If a macro generates the type, the pattern of the macro contains the attributes.
        if source
            .code
            .iter()
            .any(|it| it.trim_start().starts_with(&format!("pub enum {name} {{ $(")))
        {
            continue;
        }
        found.push((at + 1, name));
    }
    found
}

/// Returns `true` if a struct that begins at the first line has a field that is private, or `_more`.
fn has_closed_part(lines: &[String]) -> bool {
    let first = lines[0].trim_end();
    if let Some((_, fields)) = first.split_once('(') {
        return fields
            .trim_end_matches([')', ';'])
            .split(", ")
            .any(|it| !it.starts_with("pub "));
    }
    if first.ends_with(';') {
        return false;
    }
    let body = lines[1..].iter().take_while(|it| !it.starts_with('}'));
    let is_closed = |it: &str| {
        let is_field = it.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        is_field && (!it.starts_with("pub ") || it.starts_with("pub _more"))
    };
    body.filter_map(|it| it.strip_prefix("    ")).any(is_closed)
}
