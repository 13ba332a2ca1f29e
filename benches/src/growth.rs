//! Measures cost against size: the cost of an operation with a number of objects, watchers, field managers or CRDs, and
//! the memory of a server after a number of minutes of changes.

use std::path::Path;
use std::process::Command;

use fake_apiserver::ApiServer;

use crate::fanout::Watched;
use crate::measure::{is_measured, nanos_per_operation};
use crate::objects;
use crate::plot::{Series, Unit};
use crate::reads::Many;
use crate::requests::Bench;

/// Number of rounds of a measurement. The median is used.
const ROUNDS: usize = 5;

/// A plot: its file, title, axis and lines.
#[derive(Clone, Debug)]
pub struct Plot {
    /// File name of the plot, without `.svg`.
    pub file: &'static str,
    /// Title above the plot.
    pub title: &'static str,
    /// Label of the horizontal axis.
    pub axis: &'static str,
    /// Unit of the vertical axis.
    pub unit: Unit,
    /// Lines in the plot.
    pub lines: Vec<Series>,
}

/// File names of all plots, without `.svg`.
pub const FILES: [&str; 5] = ["objects", "watchers", "managers", "crds", "memory"];

/// Returns one of the plots in [`FILES`], up to a maximum number of objects. `churn` is the path of the program
/// `churn`.
pub fn plot(file: &'static str, most: usize, churn: &Path) -> Plot {
    let (title, axis, lines) = match file {
        "objects" => (
            "Time per operation with many objects of 5 KB",
            "objects",
            objects_there(most),
        ),
        "watchers" => ("Time per event and watcher", "watchers", watchers(most)),
        "managers" => ("Time per apply with many field managers", "managers", managers(most)),
        "crds" => (
            "Time per operation with many CustomResourceDefinitions",
            "CRDs",
            crds(most),
        ),
        _ => ("Memory of the process while objects change", "minutes", memory(churn)),
    };
    Plot {
        file,
        title,
        axis,
        unit: if file == "memory" {
            Unit::Bytes
        } else {
            Unit::Nanoseconds
        },
        lines,
    }
}

/// Measures the memory of servers. Each line is measured in a separate process, because the memory of a process
/// includes memory that was freed earlier.
fn memory(churn: &Path) -> Vec<Series> {
    let line = |scenario, name| {
        let mut command = Command::new(churn);
        command.arg(scenario);
        if is_measured() {
            command.arg("--bench");
        }
        let output = command.output().expect("the process starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("the text is UTF-8");
        let point = |line: &str| -> Option<(f64, f64)> {
            let (minutes, bytes) = line.split_once('\t')?;
            Some((minutes.parse().ok()?, bytes.parse().ok()?))
        };
        let points = text
            .lines()
            .map(|line| point(line).expect("the line has minutes and bytes"));
        Series {
            name,
            points: points.filter(|(_, bytes)| *bytes > 0.0).collect(),
        }
    };
    vec![
        line("objects", "425 objects, 22 writes a second"),
        line("workers", "40 Pods, 2 rollouts a minute"),
    ]
}

/// Returns 1, 10, 100, … up to the maximum.
fn sizes(most: usize, limit: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |it| Some(it * 10)).take_while(move |it| *it <= most.min(limit))
}

fn objects_there(most: usize) -> Vec<Series> {
    let mut lines = [
        "get",
        "create",
        "page of 500",
        "list, an object",
        "create under a quota",
    ]
    .map(|name| Series {
        name,
        points: Vec::new(),
    });
    for size in sizes(most, 100_000) {
        let mut bench = Bench::new();
        let pods = || (0..size).map(|at| objects::running_pod(&format!("pod-{at:07}")));
        bench.server.load(pods()).expect("the objects are loaded");
        let get = nanos_per_operation(ROUNDS, 100, |n| bench.get_pod_bytes(n));
        let create = nanos_per_operation(ROUNDS, 100, |n| bench.serve_create_map(n));
        let many = Many::pods(size);
        let page = nanos_per_operation(ROUNDS, 20, |n| many.read("/api/v1/pods?limit=500", n).1);
        let list = nanos_per_operation(ROUNDS, 2, |n| many.read("/api/v1/pods", n).1) / size as f64;
        let guard = bench.runtime.enter();
        bench.server = ApiServer::builder().resource_quota_controller().start();
        drop(guard);
        bench.create_quota();
        bench.server.load(pods()).expect("the objects are loaded");
        let counted = nanos_per_operation(ROUNDS, 100, |n| bench.serve_create_map(n));
        for (line, cost) in lines.iter_mut().zip([get, create, page, list, counted]) {
            line.points.push((size as f64, cost));
        }
    }
    lines.into()
}

fn watchers(most: usize) -> Vec<Series> {
    let line = |name, bodies: bool| {
        let point = |size: usize| {
            let watched = match bodies {
                true => Watched::by_bodies(size),
                false => Watched::by_watchers(size),
            };
            let cost = nanos_per_operation(ROUNDS, 64, |n| watched.deliver(n, 1));
            (size as f64, cost / size as f64)
        };
        Series {
            name,
            points: sizes(most, 1_000).map(point).collect(),
        }
    };
    vec![line("cursor in the log", false), line("body of a request", true)]
}

fn managers(most: usize) -> Vec<Series> {
    let point = |size: usize| {
        let mut bench = Bench::new();
        bench.apply_by_managers(size);
        (
            size as f64,
            nanos_per_operation(ROUNDS, 50, |n| bench.apply_beside_managers(n)),
        )
    };
    vec![Series {
        name: "apply ConfigMap",
        points: [1, 5, 20, 50, 200]
            .into_iter()
            .filter(|it| *it <= most)
            .map(point)
            .collect(),
    }]
}

fn crds(most: usize) -> Vec<Series> {
    let mut lines = ["create a CRD", "create ConfigMap"].map(|name| Series {
        name,
        points: Vec::new(),
    });
    for size in sizes(most, 1_000) {
        let mut bench = Bench::new();
        bench.define(size);
        let define = nanos_per_operation(3, 10, |n| bench.define(n));
        let create = nanos_per_operation(ROUNDS, 100, |n| bench.serve_create_map(n));
        lines[0].points.push((size as f64, define));
        lines[1].points.push((size as f64, create));
    }
    lines.into()
}
