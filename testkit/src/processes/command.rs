//! The command `drydock`.

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Parser, Subcommand};

use super::init::init;
use super::reaper::{ARGUMENT, reap};
use super::scenario::Scenario;
use super::search::Options;

/// Exit code if a failure was found.
const FAILED: u8 = 1;
/// Exit code if the scenario cannot be used, or a report cannot be written.
const UNUSABLE: u8 = 2;
/// Exit code if the search was interrupted before it found a failure.
const INTERRUPTED: u8 = 3;

/// Exit code if the search is interrupted more than once.
const KILLED: i32 = 130;

/// The two ways to call `drydock explore`. The second line is indented like the first one after `Usage: `.
const EXPLORE_USAGE: &str = "drydock explore [OPTIONS] <SCENARIO>
       drydock explore --init <PATH>... [--into <DIRECTORY>]";

/// The end of the help of `drydock explore`.
const EXPLORE_EXAMPLES: &str = "Examples:
  drydock explore --init config/default config/samples   writes drydock/scenario.yaml
  drydock explore drydock/scenario.yaml --budget 2m      searches for two minutes
  drydock explore drydock/scenario.yaml --html page.html writes the failing runs as a page
  drydock explore drydock/scenario.yaml --replay 'PLAN' --keep
                                                         runs a plan of a report, for kubectl and a debugger

Guide: https://github.com/drydock-rs/drydock/blob/main/testkit/docs/processes.md";

/// Explores Kubernetes controllers, in any language, without a cluster.
#[derive(Debug, Parser)]
#[command(name = "drydock", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs controllers as processes, injects faults, and reports the smallest sets of faults that break them
    ///
    /// Exit codes: 0 if no failure was found, 1 if a failure was found, 2 if the scenario or an option is invalid or a
    /// report cannot be written, 3 if the search was interrupted before it found a failure, 130 if it was interrupted
    /// more than once.
    #[command(override_usage = EXPLORE_USAGE, after_help = EXPLORE_EXAMPLES)]
    Explore(Box<Explore>),
    /// Prints the JSON Schema of scenarios, for editors
    Schema,
    /// Kills process groups when its standard input ends
    #[command(name = ARGUMENT, hide = true)]
    Reap,
}

#[derive(Debug, clap::Args)]
struct Explore {
    /// Scenario file (YAML)
    #[arg(required_unless_present = "init")]
    scenario: Option<PathBuf>,
    /// Runs this plan instead of a search (may be repeated)
    #[arg(long, value_name = "PLAN")]
    replay: Vec<String>,
    /// Keeps the replayed run alive until it is interrupted, for kubectl or a debugger
    #[arg(long, requires = "replay")]
    keep: bool,
    /// Runs only one part of the search, such as 2/8
    #[arg(long, value_name = "NUMBER/COUNT")]
    shard: Option<String>,
    /// Writes the report as JSON to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes the failing runs and their references to a file, as an HTML page with the output of the processes
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Combines the JSON reports of all shards instead of a search, and replays their failures
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["replay", "shard", "keep"])]
    merge: Vec<PathBuf>,
    /// Writes the report as JUnit XML to a file
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Ends the search after this time, such as 90s; overrides the scenario
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    budget: Option<super::time::Time>,
    /// Maximum number of plans; overrides the scenario
    #[arg(long, value_name = "COUNT")]
    plans: Option<u64>,
    /// Number of concurrent runs; overrides the scenario
    #[arg(long, value_name = "COUNT")]
    parallel: Option<usize>,
    /// Prints only the report
    #[arg(long, short)]
    quiet: bool,
    /// Writes a scenario for the manifests that install a controller: YAML files, directories of them, kustomize
    /// directories (rendered by kubectl or kustomize) and Helm charts (rendered by helm). Lists missing parts
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with = "scenario")]
    init: Vec<PathBuf>,
    /// Directory into which --init writes the scenario and its files
    #[arg(long, value_name = "DIRECTORY", requires = "init", default_value = "drydock")]
    into: PathBuf,
}

fn parse_time(text: &str) -> Result<super::time::Time, String> {
    super::time::Time::parse(text).ok_or_else(|| format!("{text:?} is not a duration such as 30s, 500ms or 2m"))
}

/// Runs the command `drydock` with the arguments of this process.
#[must_use]
#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "people read the command's output"
)]
pub fn main() -> ExitCode {
    match Args::parse().command {
        Command::Reap => {
            reap(BufReader::new(std::io::stdin()));
            ExitCode::SUCCESS
        }
        Command::Schema => {
            println!("{:#}", Scenario::schema());
            ExitCode::SUCCESS
        }
        Command::Explore(args) => match explore(&args) {
            Ok(code) => code,
            Err(err) => {
                eprintln!("drydock: {err}");
                ExitCode::from(UNUSABLE)
            }
        },
    }
}

#[expect(clippy::print_stdout, reason = "people read the report")]
fn explore(args: &Explore) -> Result<ExitCode, String> {
    if !args.init.is_empty() {
        print!("{}", init(&args.init, &args.into).map_err(|err| err.to_string())?);
        return Ok(ExitCode::SUCCESS);
    }
    let path = args.scenario.as_deref().unwrap_or(Path::new(""));
    let mut scenario = Scenario::read(path).map_err(|err| err.to_string())?;
    if let Some(time) = args.budget {
        scenario.budget.time = time;
    }
    if let Some(plans) = args.plans {
        scenario.budget.plans = plans;
    }
    scenario.parallel = args.parallel.or(scenario.parallel);
    let options = Options {
        replays: args.replay.clone(),
        keep: args.keep,
        shard: args.shard.clone(),
        merge: args.merge.clone(),
        stop: stop_at_signals()?,
        reaper: None,
        is_verbose: !args.quiet,
    };
    let report = scenario.explore(&options).map_err(|err| err.to_string())?;
    println!("{report}");
    let files: [(_, &dyn Fn() -> String); 3] = [
        (&args.json, &|| format!("{:#}\n", report.to_json())),
        (&args.junit, &|| report.to_junit()),
        (&args.html, &|| report.to_html()),
    ];
    for (path, text) in files {
        if let Some(path) = path {
            std::fs::write(path, text()).map_err(|err| format!("{}: {err}", path.display()))?;
        }
    }
    Ok(match (report.is_success(), report.is_interrupted()) {
        (false, _) => ExitCode::from(FAILED),
        (true, true) => ExitCode::from(INTERRUPTED),
        (true, false) => ExitCode::SUCCESS,
    })
}

/// Returns a flag that SIGINT and SIGTERM set. A second signal ends the process.
fn stop_at_signals() -> Result<Arc<AtomicBool>, String> {
    use tokio::signal::unix::{SignalKind, signal};

    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|err| format!("cannot listen for signals: {err}"))?;
    let signals = {
        let _in = runtime.enter();
        [SignalKind::interrupt(), SignalKind::terminate()].map(signal)
    };
    let [interrupt, terminate] = signals;
    let fail = |err: std::io::Error| format!("cannot listen for signals: {err}");
    let (mut interrupt, mut terminate) = (interrupt.map_err(fail)?, terminate.map_err(fail)?);
    let listen = move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if flag.swap(true, Ordering::Relaxed) {
                    // The reaper kills the controllers.
                    std::process::exit(KILLED);
                }
            }
        });
    };
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(listen);
    thread.map_err(fail)?;
    Ok(stop)
}
