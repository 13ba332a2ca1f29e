//! Runs the programs that count memory in the allocator, one after the other: `informer_memory` and `hundred_thousand`.
//! Without `--bench`, only checks that these programs run, with few objects.

use std::process::{Command, ExitCode};

use benches::measure::is_measured;

/// Sizes for checking that the programs run.
const FEW: [(&str, &str); 3] = [("PODS", "50"), ("CHANGES", "50"), ("SECONDS", "1")];

fn main() -> ExitCode {
    let programs = [
        env!("CARGO_BIN_EXE_informer_memory"),
        env!("CARGO_BIN_EXE_hundred_thousand"),
    ];
    let sizes: &[_] = if is_measured() { &[] } else { &FEW };
    let has_run = |program: &str| {
        let status = Command::new(program).envs(sizes.iter().copied()).status();
        status.is_ok_and(|it| it.success())
    };
    match programs.into_iter().all(has_run) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
