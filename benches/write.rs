//! Runs a single path through the server a number of times, for callgrind: `write "apply Pod" 200`. Without a name,
//! runs all paths and prints the CPU time of each path.
//!
//! `--instructions` counts the instructions of the most important paths, by running this program under valgrind.
//! `--json FILE` writes the counts. `--compare FILE` fails if a path needs over 5 % more instructions than in this
//! file. `benches/instructions.json` contains the counts of the last commit that changed them intentionally.

#![expect(clippy::print_stdout, reason = "it prints figures")]

use std::process::ExitCode;

use benches::instructions;
use benches::measure::middle_nanos;
use benches::requests::Bench;
use benches::server_writes::WRITES;
use serde_json::{Value, json};

/// Fraction by which the number of instructions of a path may increase.
const TOLERANCE: f64 = 0.05;

/// Counts instructions. Returns `false` if they have increased too much.
fn count_instructions(json: Option<&str>, compared: Option<&str>) -> Result<bool, String> {
    let program = std::env::current_exe().map_err(|err| format!("the path of this program: {err}"))?;
    let now = instructions::count_all(&program).ok_or("valgrind cannot be run")?;
    for (path, count) in &now {
        println!("{path}\t{count}");
    }
    let tools = instructions::tools();
    if let Some(file) = json {
        let counts = json!({"instructions": now, "countedWith": tools});
        std::fs::write(file, format!("{counts:#}\n")).map_err(|err| format!("{file}: {err}"))?;
    }
    let Some(file) = compared else {
        return Ok(true);
    };
    let text = std::fs::read(file).map_err(|err| format!("{file}: {err}"))?;
    let before: Value = serde_json::from_slice(&text).map_err(|err| format!("{file}: {err}"))?;
    let others = &before["countedWith"];
    if *others != json!(tools) {
        println!(
            "not compared: {file} was counted with {others}, these with {}",
            json!(tools)
        );
        return Ok(true);
    }
    let counts = before["instructions"].as_object().into_iter().flatten();
    let before = counts
        .filter_map(|(path, count)| Some((path.clone(), count.as_u64()?)))
        .collect();
    let found = instructions::regressions(&before, &now, TOLERANCE);
    for it in &found {
        let percent = (it.now as f64 / it.before as f64 - 1.0) * 100.0;
        println!(
            "{}: {} instructions, before {}: {percent:.1} % more",
            it.path, it.now, it.before
        );
    }
    Ok(found.is_empty())
}

/// Runs a path `count` times, or measures all paths.
fn run(path: Option<&str>, count: Option<usize>) {
    for (name, write) in WRITES {
        match path {
            None => {
                let mut bench = Bench::new();
                let nanos = middle_nanos(9, 200, |count| write(&mut bench, count));
                println!("{name}\t{nanos:.0}");
            }
            Some(path) if path == name => {
                write(&mut Bench::new(), count.unwrap_or(100));
            }
            Some(_) => {}
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let after = |name: &str| {
        let at = arguments.iter().position(|it| it == name)?;
        arguments.get(at + 1).map(String::as_str)
    };
    let compared = after("--compare");
    if compared.is_none() && !arguments.iter().any(|it| it == "--instructions") {
        run(
            arguments.first().map(String::as_str),
            arguments.get(1).and_then(|it| it.parse().ok()),
        );
        return ExitCode::SUCCESS;
    }
    match count_instructions(after("--json"), compared) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(err) => {
            println!("error: {err}");
            ExitCode::FAILURE
        }
    }
}
