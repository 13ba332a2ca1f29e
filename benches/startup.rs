//! Measures the CPU time and memory from the start of a manager with 100,000 Pods to its first reconcile, compared with
//! a controller of kube-runtime and an informer of client-go with protobuf. `PODS` sets the number of Pods.
//!
//! Each client is a separate process. It reads over a socket from another process, which has encoded all objects in
//! advance. If `go` cannot build the clients of client-go, their rows are omitted.

#![expect(clippy::print_stdout, reason = "it prints its figures")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use benches::counting::{Counting, measured};
use benches::measure::process_cpu_time;
use benches::mirror::{Mirror, pod_text};
use futures::StreamExt;
use informer::Storage;
use informer::cache::{ByObject, ReflectorOptions};
use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::Manager;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{Controller, controller, watcher};
use kube::{Api, Client, Config};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::time::Instant;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The Rust clients, with the arguments that select them.
const CLIENTS: [(&str, &str); 4] = [
    ("encoded", "encoded"),
    ("encoded, managedFields cut", "cut"),
    ("typed, managedFields cut", "typed"),
    ("kube-runtime", "kube-runtime"),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve"] => serve(),
        ["client", name, url] => client(name, url),
        _ => table(),
    }
}

fn pods() -> usize {
    let asked = std::env::var("PODS").ok();
    asked.and_then(|it| it.parse().ok()).unwrap_or(100_000)
}

/// Returns a runtime with the real clock.
fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime can be built")
}

/// Prints an address, and serves the Pods there until the process is killed.
fn serve() {
    let mirror = Mirror::new(pods());
    let serving = async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("http://{}", listener.local_addr()?);
        axum::serve(listener, mirror.service()).await
    };
    runtime().block_on(serving).expect("the Pods can be served");
}

/// Runs a client and prints its figures: CPU time and real time in seconds, bytes of live objects, and maximum resident
/// memory.
fn client(name: &str, url: &str) {
    let runtime = runtime();
    let _entered = runtime.enter();
    let config = Config::new(url.parse().expect("the address is a URL"));
    let (began, cpu) = (Instant::now(), process_cpu_time());
    let (held, _, _started) = measured(|| {
        runtime.block_on(async {
            let client = Client::try_from(config).expect("the client can be built");
            match name {
                "encoded" => Some(ours(client, Storage::Encoded, false).await),
                "cut" => Some(ours(client, Storage::Encoded, true).await),
                "typed" => Some(ours(client, Storage::Typed, true).await),
                _ => {
                    kube_runtime(client).await;
                    None
                }
            }
        })
    });
    let (cpu, wall) = (process_cpu_time() - cpu, began.elapsed());
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status
        .lines()
        .find_map(|it| it.strip_prefix("VmHWM:")?.split_whitespace().next());
    let peak = peak.and_then(|it| it.parse::<u64>().ok()).unwrap_or_default() * 1024;
    println!("{:.3} {:.3} {held} {peak}", cpu.as_secs_f64(), wall.as_secs_f64());
}

/// Runs a manager until its controller is called for the first time.
async fn ours(client: Client, storage: Storage, strips: bool) -> Result<Manager, informer::Error> {
    let pods = ByObject::<Pod>::new().informer(move |pods| {
        // The source serves an encoded list, and does not support streaming lists.
        let mut options = ReflectorOptions::default();
        options.streaming_lists = false;
        let pods = pods.reflector(options).storage(storage);
        if strips { pods.strip_managed_fields() } else { pods }
    });
    let manager = Manager::builder(client).cache(|cache| cache.by_object(pods))?.build()?;
    let first = Arc::new(Notify::new());
    let called = Arc::clone(&first);
    manager.controller("pods").for_::<Pod>().complete(move |_: Request| {
        called.notify_one();
        async { Ok::<_, ReconcileError>(Action::await_change()) }
    })?;
    let running = manager.clone();
    tokio::spawn(async move { running.run(std::future::pending()).await });
    first.notified().await;
    Ok(manager)
}

/// Runs a controller of kube-runtime until it is called for the first time.
async fn kube_runtime(client: Client) {
    let first = Arc::new(Notify::new());
    let reconcile = |_: Arc<Pod>, first: Arc<Notify>| async move {
        first.notify_one();
        Ok::<_, kube::Error>(controller::Action::await_change())
    };
    let policy = |_: Arc<Pod>, _: &kube::Error, _: Arc<Notify>| controller::Action::requeue(Duration::from_secs(5));
    let running = Controller::new(Api::<Pod>::all(client), watcher::Config::default())
        .with_config(controller::Config::default().concurrency(1))
        .run(reconcile, policy, Arc::clone(&first))
        .for_each(|_| async {});
    tokio::spawn(running);
    first.notified().await;
}

/// A process that is killed when this value is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Starts a server, and returns the server with the address that it prints.
fn started(command: &mut Command) -> Option<(Server, String)> {
    let mut child = command.stdout(Stdio::piped()).spawn().ok()?;
    let output = child.stdout.take()?;
    let server = Server(child);
    let mut address = String::new();
    BufReader::new(output).read_line(&mut address).ok()?;
    let address = address.trim().to_owned();
    address.starts_with("http").then_some((server, address))
}

/// Runs a client and returns the figures that it prints.
fn figures(command: &mut Command) -> Option<Vec<f64>> {
    let output = command.stderr(Stdio::inherit()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let figures: Vec<f64> = text.split_whitespace().filter_map(|it| it.parse().ok()).collect();
    (figures.len() == 4).then_some(figures)
}

fn row(name: &str, count: usize, command: &mut Command) {
    let mut rows: Vec<_> = (0..3).filter_map(|_| figures(command)).collect();
    rows.sort_by(|one, other| one[0].total_cmp(&other[0]));
    let Some([cpu, wall, held, peak]) = rows.get(rows.len() / 2).map(|it| [it[0], it[1], it[2], it[3]]) else {
        println!("{name:<34} not measured");
        return;
    };
    let (held, peak) = (held / count as f64, peak / count as f64);
    println!("{name:<34} {cpu:>8.2} {wall:>8.2} {held:>12.0} {peak:>12.0}");
}

/// Builds the Go clients next to this program.
fn client_go() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.with_file_name("startup_client_go");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/client_go");
    let mut go = Command::new("go");
    let built = go
        .arg("build")
        .arg("-o")
        .arg(&program)
        .arg(".")
        .current_dir(source)
        .status();
    built.is_ok_and(|it| it.success()).then_some(program)
}

fn table() {
    let this = std::env::current_exe().expect("the system returns the path of this executable");
    let count = pods();
    let length = pod_text(0, 1).len();
    println!("{count} Pods of {length} bytes, from start to the first reconcile; medians of three runs");
    let heads = ["CPU s", "real s", "held", "resident"];
    println!(
        "{:<34} {:>8} {:>8} {:>12} {:>12}",
        "", heads[0], heads[1], heads[2], heads[3]
    );
    let (_server, url) = started(Command::new(&this).arg("serve")).expect("the server starts");
    for (name, argument) in CLIENTS {
        row(name, count, Command::new(&this).args(["client", argument, &url]));
    }
    let Some(go) = client_go() else {
        println!("client-go: not built");
        return;
    };
    let mirror = started(Command::new(&go).args(["mirror", &url])).expect("the server starts");
    for (name, form, cut) in [
        ("client-go, protobuf", "application/vnd.kubernetes.protobuf", ""),
        (
            "client-go, protobuf, fields cut",
            "application/vnd.kubernetes.protobuf",
            "yes",
        ),
        ("client-go, JSON", "application/json", ""),
    ] {
        let mut command = Command::new(&go);
        row(name, count, command.args(["client", &mirror.1, form]).env("CUT", cut));
    }
}
