//! No circular dependencies: the dependencies between the files of each crate have one direction.
//!
//! A file depends on another through a path, as `crate::storage::Key` refers to `storage/key.rs` through the `pub use`
//! of `storage/mod.rs`. A file and the `mod.rs` of a folder that contains it may depend on each other.

use std::collections::{BTreeMap, BTreeSet};

use super::{Faults, Source, sources};

/// Maximum number of files in a listed circle.
const LARGEST: usize = 6;

/// The permitted circular dependencies of `fake-apiserver`, between files that are parts of one unit.
const SERVER: &[&[&str]] = &[
    // A schema contains and compiles its rules, which are evaluated when values are validated.
    &[
        "registry/custom/engine/evaluate.rs",
        "registry/custom/number.rs",
        "registry/custom/properties.rs",
        "registry/custom/rules.rs",
        "registry/custom/schema.rs",
        "registry/custom/validate.rs",
    ],
    // The conversion uses the results of the scan, and the scan uses the path steps of the conversion.
    &["registry/types/decode/convert.rs", "registry/types/decode/scan.rs"],
    // Tables of data, and the types of their entries.
    &["registry/types/schema/builtin.rs", "registry/types/schema/table.rs"],
    &["registry/types/schema/resources.rs", "registry/types/schema/served.rs"],
];

/// The permitted circular dependencies of `informer`.
const INFORMER: &[&[&str]] = &[
    // An indexer returns listers, which read its snapshot.
    &["cache/indexer.rs", "cache/lister.rs"],
    // An error implements the predicates, which search the errors that wrap it.
    &["error.rs", "errors.rs"],
    // A predicate wraps a handler, and the result is another handler.
    &["handler/event_handler.rs", "handler/predicate.rs"],
    // The state after a write with an unknown outcome is read from the server, and the result is a completed write.
    &["reconcile/asked.rs", "reconcile/write.rs"],
    // The recorder starts the lanes, which read its options.
    &["runtime/event_sink.rs", "runtime/recorder.rs"],
    // The elector returns fenced clients, and the fence checks the elector.
    &["runtime/fence.rs", "runtime/leader_election.rs"],
    // A replica's Lease lists the replicas that have ended, which are read from the Leases of the other replicas.
    &["runtime/sharding/member_lease.rs", "runtime/sharding/peers.rs"],
];

/// The permitted circular dependencies of `testkit`.
const TESTKIT: &[&[&str]] = &[
    // A cluster contains its controllers, faults, reads and mirror, and its methods use them.
    &[
        "controller.rs",
        "faults.rs",
        "read.rs",
        "real.rs",
        "report.rs",
        "test_cluster.rs",
    ],
    // A pair compares the objects of two states, and looks up the objects that they refer to in these states.
    &["explore/outcomes/end_state.rs", "explore/outcomes/pair.rs"],
];

#[test]
fn server_files_have_no_circular_dependencies() {
    check("fake-apiserver", SERVER);
}

#[test]
fn informer_files_have_no_circular_dependencies() {
    check("informer", INFORMER);
}

#[test]
fn testkit_files_have_no_circular_dependencies() {
    check("testkit", TESTKIT);
}

/// Asserts that the circular dependencies of a crate are exactly the listed ones.
#[track_caller]
fn check(name: &str, listed: &[&[&str]]) {
    let mut sources = sources(&format!("{name}/src"));
    // The command is a separate crate.
    sources.retain(|it| it.layer() != "main");
    let names = Names::of(&sources);
    let mut found: Vec<Vec<&str>> = names.circles();
    found.sort();
    let listed: Vec<Vec<&str>> = listed.iter().map(|it| it.to_vec()).collect();
    let mut faults = Faults::default();
    for circle in found.iter().filter(|it| !listed.contains(it)) {
        let arrows = names.arrows_within(circle);
        faults
            .0
            .push(format!("{} files that name each other: {arrows}", circle.len()));
    }
    for circle in listed.iter().filter(|it| !found.contains(it)) {
        faults.0.push(format!("the listed circle no longer exists: {circle:?}"));
    }
    for circle in listed.iter().filter(|it| it.len() > LARGEST) {
        faults.0.push(format!(
            "a circle of {} files, {LARGEST} are the most: {circle:?}",
            circle.len()
        ));
    }
    faults.assert_none();
}

/// A path of modules, from the root of the crate.
type Path = Vec<String>;

/// The files of a crate, and the files that each of them refers to.
struct Names<'a> {
    /// The files within `src`, each with the files that it refers to.
    named: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

impl<'a> Names<'a> {
    fn of(sources: &'a [Source]) -> Self {
        let file = |it: &'a Source| it.path.split_once("/src/").map_or("", |(_, file)| file);
        let modules: BTreeMap<Path, &str> = sources.iter().map(|it| (module_of(file(it)), file(it))).collect();
        let mut exports: BTreeMap<Path, Path> = BTreeMap::new();
        for source in sources {
            let module = module_of(file(source));
            for path in paths(&source.code.join("\n")).into_iter().filter(|it| it.is_exported) {
                let named = absolute(&path.steps, &module, &modules, &BTreeMap::new());
                if let (Some(named), Some(name)) = (named, path.steps.last()) {
                    let export = [module.as_slice(), std::slice::from_ref(name)].concat();
                    if named != export {
                        exports.insert(export, named);
                    }
                }
            }
        }
        let mut named = BTreeMap::new();
        for source in sources {
            let module = module_of(file(source));
            let paths = paths(&source.code.join("\n"));
            let mut imports = BTreeMap::new();
            for path in &paths {
                let full = absolute(&path.steps, &module, &modules, &BTreeMap::new());
                if let (Some(full), Some(name)) = (full, path.steps.last())
                    && modules.contains_key(&full)
                {
                    imports.insert(name.clone(), full);
                }
            }
            let files = paths.iter().filter(|it| !it.is_exported).filter_map(|path| {
                let full = absolute(&path.steps, &module, &modules, &imports)?;
                // A reference to an item in an imported module counts as a reference to the module.
                let full = Some(full).filter(|it| !modules.contains_key(it))?;
                let head = home(full, &modules, &exports)?;
                (!module.starts_with(&head)).then(|| modules[&head])
            });
            named.insert(file(source), files.collect());
        }
        Self { named }
    }

    /// Returns groups of files in which each file depends on every other file, directly or indirectly.
    fn circles(&self) -> Vec<Vec<&'a str>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> = self.named.keys().map(|it| (*it, self.reached(it))).collect();
        let mut circles: BTreeSet<Vec<&str>> = BTreeSet::new();
        for (file, below) in &reached {
            let circle: Vec<&str> = below.iter().copied().filter(|it| reached[it].contains(file)).collect();
            if circle.len() > 1 {
                circles.insert(circle);
            }
        }
        circles.into_iter().collect()
    }

    fn reached(&self, file: &str) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&str> = self.named[file].iter().copied().collect();
        while let Some(file) = next.pop() {
            if reached.insert(file) {
                next.extend(&self.named[file]);
            }
        }
        reached
    }

    fn arrows_within(&self, circle: &[&str]) -> String {
        let arrows = circle.iter().flat_map(|from| {
            let to = self.named[from].iter().filter(|it| circle.contains(it));
            to.map(move |to| format!("{from} -> {to}"))
        });
        arrows.collect::<Vec<_>>().join(", ")
    }
}

/// Returns the module of a file: `storage/mod.rs` is `storage`, `lib.rs` the root.
fn module_of(file: &str) -> Path {
    let mut module: Path = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|it| it == "mod" || it == "lib") {
        module.pop();
    }
    module
}

/// Returns the module that defines an item, following the exports of other modules; `None` outside of the crate.
fn home(path: Path, modules: &BTreeMap<Path, &str>, exports: &BTreeMap<Path, Path>) -> Option<Path> {
    let mut path = path;
    // Further exports of one item would themselves form a circle.
    for _ in 0..8 {
        let exported = (1..=path.len()).find_map(|end| {
            let to = exports.get(&path[..end])?;
            Some([to.as_slice(), &path[end..]].concat())
        });
        match exported {
            Some(next) => path = next,
            None => break,
        }
    }
    (0..=path.len())
        .rev()
        .map(|end| path[..end].to_vec())
        .find(|it| modules.contains_key(it))
}

/// Converts a path in a file to one from the root of the crate; `None` if it begins with the name of another crate or
/// an item.
fn absolute(
    steps: &[String],
    module: &Path,
    modules: &BTreeMap<Path, &str>,
    imports: &BTreeMap<String, Path>,
) -> Option<Path> {
    let first = steps.first()?.as_str();
    let up = steps.iter().take_while(|it| *it == "super").count();
    let child = || [module.as_slice(), &steps[..1]].concat();
    let (base, rest) = match first {
        "crate" => (Path::new(), &steps[1..]),
        "self" => (module.clone(), &steps[1..]),
        "super" => (module[..module.len().checked_sub(up)?].to_vec(), &steps[up..]),
        name if imports.contains_key(name) => (imports[name].clone(), &steps[1..]),
        _ if modules.contains_key(&child()) => (module.clone(), steps),
        _ => return None,
    };
    Some([base.as_slice(), rest].concat())
}

/// A path in a file.
#[derive(Debug, PartialEq)]
struct Named {
    steps: Path,
    /// Set if the path is in a `pub use`.
    is_exported: bool,
}

/// Returns all paths with `::` in source code without comments and strings. The paths of a group are returned
/// separately.
fn paths(code: &str) -> Vec<Named> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(offset) = code[at..].find(is_start) {
        let start = at + offset;
        let (steps, end) = tree(code, start);
        let before = code[..start].trim_end();
        let is_exported = before.strip_suffix("use").is_some_and(|it| {
            let it = it.trim_end();
            it.ends_with("pub") || it.ends_with(')')
        });
        let of_path = steps.into_iter().filter(|it| it.len() > 1);
        found.extend(of_path.map(|steps| Named { steps, is_exported }));
        at = end.max(start + 1);
    }
    found
}

fn is_start(letter: char) -> bool {
    letter.is_ascii_alphabetic() || letter == '_'
}

/// Returns the paths of a tree such as `a::{b, c::d}` that begins at an offset, and the offset after it.
fn tree(code: &str, start: usize) -> (Vec<Path>, usize) {
    let skip = |at: usize| at + (code[at..].len() - code[at..].trim_start().len());
    let mut steps = Path::new();
    let mut at = start;
    loop {
        at = skip(at);
        if code[at..].starts_with('{') && !steps.is_empty() {
            let mut all = Vec::new();
            at = skip(at + 1);
            while code[at..].starts_with(|it| is_start(it) || it == '*') {
                let (below, end) = tree(code, at);
                all.extend(below.into_iter().map(|it| [steps.as_slice(), &it].concat()));
                let end = code[end..].find([',', '}']).map_or(code.len(), |it| end + it);
                at = if code[end..].starts_with(',') {
                    skip(end + 1)
                } else {
                    end
                };
            }
            return (all, (at + 1).min(code.len()));
        }
        let length = code[at..]
            .find(|it: char| !(it.is_alphanumeric() || it == '_'))
            .unwrap_or(code.len() - at);
        if length == 0 {
            return (vec![steps], at.max(start + 1));
        }
        steps.push(code[at..at + length].to_owned());
        at += length;
        match code[skip(at)..].strip_prefix("::") {
            Some(_) => at = skip(at) + 2,
            None => return (vec![steps], at),
        }
    }
}

mod reader {
    use super::*;

    #[test]
    fn paths_in_use_groups_are_separated() {
        let found = paths("pub(crate) use a::{b, c::{self, d}}; let x = crate::e::F::<u8>::new(y);");
        let text: Vec<String> = found.iter().map(|it| it.steps.join("::")).collect();
        assert_eq!(text, ["a::b", "a::c::self", "a::c::d", "crate::e::F"]);
        assert_eq!(found.iter().filter(|it| it.is_exported).count(), 3);
    }

    #[test]
    fn files_that_refer_to_each_other_are_a_circular_dependency() {
        let source = |path: &str, code: &str| Source {
            path: format!("x/src/{path}"),
            text: String::new(),
            code: vec![code.to_owned()],
        };
        let sources = [
            source("lib.rs", "mod a; mod b;"),
            source("a/mod.rs", "pub(crate) use c::C; struct A; fn f() { d::g() }"),
            source("a/c.rs", "use super::A; use crate::b::B;"),
            source("a/d.rs", "use super::A;"),
            source("b.rs", "use crate::a::C;"),
        ];
        let names = Names::of(&sources);
        assert_eq!(names.circles(), [["a/c.rs", "b.rs"]]);
        assert_eq!(
            names.arrows_within(&["a/c.rs", "b.rs"]),
            "a/c.rs -> b.rs, b.rs -> a/c.rs"
        );
    }
}
