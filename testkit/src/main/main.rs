//! The command `drydock`.

use std::process::ExitCode;

#[cfg(unix)]
fn main() -> ExitCode {
    testkit::processes::main()
}

#[cfg(not(unix))]
#[expect(clippy::print_stderr, reason = "people read the command's output")]
fn main() -> ExitCode {
    eprintln!("drydock: processes can be explored on Linux and macOS only");
    ExitCode::from(2)
}
