//! Measures the figures of the server and of the testkit, and prints them in a table: costs, targets, and the costs of
//! kube-fake-client.
//!
//! `--json FILE` also writes the figures as JSON.

#![expect(clippy::print_stdout, reason = "it prints a table")]

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};

use benches::controllers::{idle_hours, whole_test};
use benches::fanout::Watched;
use benches::measure::{is_measured, nanos_per_operation, scaled};
use benches::reads::Many;
use benches::requests::{Bench, start_and_answer};
use serde_json::{Value, json};

/// A line of the table. Times are in nanoseconds, and sizes in bytes.
struct Line {
    name: &'static str,
    found: f64,
    target: f64,
    /// Name of the corresponding figure of kube-fake-client.
    peer: &'static str,
    unit: Unit,
}

#[derive(Clone, Copy)]
enum Unit {
    Nanos,
    Bytes,
    PerSecond,
    Times,
}

fn write_json(file: Option<&str>, value: &Value) -> Result<(), String> {
    let Some(file) = file else { return Ok(()) };
    std::fs::write(file, format!("{value:#}\n")).map_err(|err| format!("{file}: {err}"))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let json = arguments.iter().position(|it| it == "--json");
    let json = json.and_then(|at| arguments.get(at + 1));
    match measure(json.map(String::as_str)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            println!("error: {err}");
            ExitCode::FAILURE
        }
    }
}

/// Measures the figures of the server and of the testkit, and prints the table.
fn measure(json: Option<&str>) -> Result<(), String> {
    let mut peer = BTreeMap::new();
    let mut memory = Command::new(env!("CARGO_BIN_EXE_memory"));
    if is_measured() {
        memory.arg("--bench");
        peer = child(
            Command::new(env!("CARGO"))
                .args(["run", "--quiet", "--release", "--manifest-path"])
                .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/peer/Cargo.toml")),
        );
    }
    let memory = child(&mut memory);
    let mut lines = Vec::new();
    requests(&mut lines);
    pods(&mut lines);
    reads(&mut lines);
    fanout(&mut lines);
    controllers(&mut lines);
    sizes(&mut lines, &memory);
    print(&lines, &peer);
    let line = |line: &Line| {
        let peer = peer.get(line.peer);
        (
            line.name.to_owned(),
            json!({"figure": line.found, "target": line.target, "kube-fake-client": peer}),
        )
    };
    write_json(
        json,
        &json!({"figures": lines.iter().map(line).collect::<BTreeMap<_, _>>()}),
    )
}

/// Runs a program, and returns the lines that it prints, each of which contains a name and a number.
fn child(command: &mut Command) -> BTreeMap<String, f64> {
    let output = command
        .output()
        .map(|it| String::from_utf8_lossy(&it.stdout).into_owned())
        .unwrap_or_default();
    let line = |line: &str| {
        let (name, number) = line.split_once('\t')?;
        Some((name.to_owned(), number.parse().ok()?))
    };
    output.lines().filter_map(line).collect()
}

fn requests(lines: &mut Vec<Line>) {
    let mut add = |name, target: f64, peer, found| {
        lines.push(Line {
            name,
            found,
            target,
            peer,
            unit: Unit::Nanos,
        })
    };
    add(
        "start to first answer",
        50e3,
        "start",
        nanos_per_operation(9, 200, start_and_answer),
    );
    let bench = &mut Bench::new();
    add(
        "create ConfigMap 200 B",
        9e3,
        "create_map",
        nanos_per_operation(9, 2000, |n| bench.create_maps(n)),
    );
    let found = nanos_per_operation(9, 2000, |n| bench.create_maps_and_watch(n));
    add("the same and its watch event seen", 11e3, "", found);
    add(
        "get ConfigMap",
        f64::NAN,
        "get_map",
        nanos_per_operation(9, 2000, |n| bench.get_map(n)),
    );
    add(
        "merge patch ConfigMap",
        f64::NAN,
        "merge_map",
        nanos_per_operation(9, 2000, |n| bench.merge_map(n)),
    );
    add(
        "server-side apply ConfigMap",
        25e3,
        "apply_map",
        nanos_per_operation(9, 1000, |n| bench.apply_map(n)),
    );
    add(
        "delete ConfigMap",
        f64::NAN,
        "delete_map",
        nanos_per_operation(9, 500, |n| bench.delete_maps(n)),
    );
}

fn pods(lines: &mut Vec<Line>) {
    let bench = &mut Bench::new();
    let mut add = |name, target: f64, peer, found| {
        lines.push(Line {
            name,
            found,
            target,
            peer,
            unit: Unit::Nanos,
        })
    };
    add(
        "create Pod 5 KB",
        60e3,
        "create_pod",
        nanos_per_operation(9, 300, |n| bench.create_pods(n)),
    );
    add(
        "get Pod 5 KB",
        21e3,
        "get_pod",
        nanos_per_operation(9, 500, |n| bench.get_pod(n)),
    );
    add(
        "get Pod 5 KB, server's part",
        1.5e3,
        "",
        nanos_per_operation(9, 2000, |n| bench.get_pod_bytes(n)),
    );
    add(
        "replace Pod 5 KB",
        60e3,
        "replace_pod",
        nanos_per_operation(9, 200, |n| bench.replace_pod(n)),
    );
    add(
        "server-side apply Pod 5 KB",
        40e3,
        "",
        nanos_per_operation(9, 200, |n| bench.apply_pod(n)),
    );
    add(
        "server-side apply Pod of 5 managers",
        f64::NAN,
        "",
        nanos_per_operation(9, 200, |n| bench.apply_pod_of_five(n)),
    );
    add(
        "strategic patch Pod 5 KB",
        f64::NAN,
        "",
        nanos_per_operation(9, 200, |n| bench.strategic_pod(n)),
    );
    add(
        "create CRD, 300 lines and 10 CEL rules",
        f64::NAN,
        "",
        nanos_per_operation(9, 20, |n| bench.create_definitions(n)),
    );
}

fn reads(lines: &mut Vec<Line>) {
    let mut add = |name, target: f64, peer, found| {
        lines.push(Line {
            name,
            found,
            target,
            peer,
            unit: Unit::Nanos,
        })
    };
    let many = Many::pods(scaled(100_000, 1_000));
    let found = nanos_per_operation(5, 1, |n| many.list(n)) / many.count as f64;
    add("list 100,000 Pods, an object", 500.0, "list_pod", found);
    add(
        "page of 500 of 100,000 Pods",
        150e3,
        "page",
        nanos_per_operation(9, 20, |n| many.page(n)),
    );
    let found = nanos_per_operation(9, 100, |n| many.snapshot_and_fork(n));
    add("snapshot and fork of 100,000 Pods", 1e6, "", found);
    add(
        "fork of 100,000 Pods and first write",
        f64::NAN,
        "",
        nanos_per_operation(9, 20, |n| many.write_to_fork(n)),
    );
    drop(many);
    let many = Many::pods(scaled(10_000, 1_000));
    let found = nanos_per_operation(9, 10, |n| many.select_none(n));
    add("selector that fits none of 10,000 Pods", 0.6e6, "select_none", found);
}

fn fanout(lines: &mut Vec<Line>) {
    let watchers = scaled(1_000, 10);
    let rate = |watched: &Watched, events: usize, burst: usize| {
        1e9 * watchers as f64 / nanos_per_operation(5, events, |n| watched.deliver(n, burst))
    };
    let mut add = |name, target, found| {
        lines.push(Line {
            name,
            found,
            target,
            peer: "",
            unit: Unit::PerSecond,
        })
    };
    let watched = Watched::by_watchers(watchers);
    add("deliveries to 1,000 watchers, each woken", 4e6, rate(&watched, 256, 1));
    add(
        "deliveries to 1,000 watchers, bursts of 64",
        25e6,
        rate(&watched, 1024, 64),
    );
    let watched = Watched::by_bodies(watchers);
    add(
        "event lines to 1,000 bodies, each woken",
        f64::NAN,
        rate(&watched, 256, 1),
    );
    add(
        "event lines to 1,000 bodies, bursts of 64",
        f64::NAN,
        rate(&watched, 1024, 64),
    );
    let (alone, beside) = (Watched::idle(0), Watched::idle(scaled(10_000, 10)));
    let ratio = nanos_per_operation(9, 1000, |n| beside.commit(n)) / nanos_per_operation(9, 1000, |n| alone.commit(n));
    let name = "commit with 10,000 idle watchers";
    lines.push(Line {
        name,
        found: ratio,
        target: 1.1,
        peer: "",
        unit: Unit::Times,
    });
}

fn controllers(lines: &mut Vec<Line>) {
    let mut add = |name, target: f64, found| {
        lines.push(Line {
            name,
            found,
            target,
            peer: "",
            unit: Unit::Nanos,
        })
    };
    add(
        "whole controller test, 10 + 10 objects",
        0.6e6,
        nanos_per_operation(9, 50, |n| whole_test(n, 10).0),
    );
    add(
        "whole controller test, 1 + 1 object",
        f64::NAN,
        nanos_per_operation(9, 200, |n| whole_test(n, 1).0),
    );
    add(
        "24 virtual hours of an idle controller",
        100e6,
        nanos_per_operation(3, 1, |_| idle_hours(scaled(24, 1) as u64)),
    );
}

fn sizes(lines: &mut Vec<Line>, memory: &BTreeMap<String, f64>) {
    let mut add = |name, target, key: &str| {
        let found = memory.get(key).copied().unwrap_or(f64::NAN);
        lines.push(Line {
            name,
            found,
            target,
            peer: "",
            unit: Unit::Bytes,
        });
    };
    add(
        "heap of the first server to its first answer",
        256.0 * 1024.0,
        "first_start",
    );
    add("heap of a later server to its first answer", 256.0 * 1024.0, "start");
    add("the running Pod as JSON", f64::NAN, "pod_json");
    add("the running Pod stored", 8192.0, "stored_pod");
    add("list of 100,000 Pods, extra memory", 1048576.0, "list");
    add("snapshot and fork of 100,000 Pods", f64::NAN, "snapshot_and_fork");
    add("an open watch", f64::NAN, "watch");
    add("a watch with a connection of its own", 18.0 * 1024.0, "socket_watch");
    add("a connection that says nothing", 10.0 * 1024.0, "silent_connection");
}

fn print(lines: &[Line], peer: &BTreeMap<String, f64>) {
    println!("| what | figure | target | | kube-fake-client | ratio |");
    println!("|---|---|---|---|---|---|");
    for line in lines {
        let better = if matches!(line.unit, Unit::PerSecond) {
            line.found >= line.target
        } else {
            line.found <= line.target
        };
        let verdict = match (line.target.is_nan(), better) {
            (true, _) => "",
            (false, true) => "met",
            (false, false) => "missed",
        };
        let theirs = peer.get(line.peer).copied().unwrap_or(f64::NAN);
        let ratio = if theirs.is_nan() {
            String::new()
        } else {
            format!("{:.1}×", theirs / line.found)
        };
        let (found, target, theirs) = (
            shown(line.found, line.unit),
            shown(line.target, line.unit),
            shown(theirs, line.unit),
        );
        println!(
            "| {} | {found} | {target} | {verdict} | {theirs} | {ratio} |",
            line.name
        );
    }
}

fn shown(number: f64, unit: Unit) -> String {
    match unit {
        _ if number.is_nan() => String::new(),
        Unit::Nanos if number < 1e3 => format!("{number:.0} ns"),
        Unit::Nanos if number < 1e6 => format!("{:.2} µs", number / 1e3),
        Unit::Nanos => format!("{:.2} ms", number / 1e6),
        Unit::Bytes if number < 10240.0 => format!("{number:.0} B"),
        Unit::Bytes => format!("{:.0} KiB", number / 1024.0),
        Unit::PerSecond => format!("{:.1} M/s", number / 1e6),
        Unit::Times => format!("{number:.2}×"),
    }
}
