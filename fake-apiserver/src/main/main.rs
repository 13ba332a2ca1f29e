//! The command `fake-apiserver`: an API server for kubectl and other clients, which runs until it is interrupted.
//!
//! If the program is called `kube-apiserver` or `etcd`, it behaves like that program, for tools that start a control
//! plane from a directory of programs. `assets` creates such a directory.

mod args;
mod audit;
mod feature_gates;
mod front_proxy;
mod assets;
mod etcd;
mod fake;
mod interruption;
mod kube_apiserver;
mod log;
mod other_flags;
mod parent;
mod reason;
mod rotation;
mod setup;

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;

/// Returns freed memory to the system, unlike the allocator of the C library.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The program to run, selected by the name under which this executable was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Personality {
    FakeApiserver,
    KubeApiserver,
    Etcd,
}

fn main() -> ExitCode {
    let (personality, args) = personality(std::env::args_os().collect());
    let done = match personality {
        Personality::FakeApiserver => fake::run(fake::Args::parse_from(args)),
        Personality::KubeApiserver => match kube_apiserver::parse(args) {
            Ok(args) => kube_apiserver::run(args),
            Err(unknown) => {
                if unknown.use_stderr() {
                    reason::tell_parent(&unknown.to_string());
                }
                unknown.exit()
            }
        },
        Personality::Etcd => etcd::run(&etcd::parse(args)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            reason::tell_parent(&format!("error: {reason}\n"));
            report(format_args!("error: {reason}"));
            ExitCode::FAILURE
        }
    }
}

/// Returns the program selected by the program's name or its first argument, and the remaining arguments.
fn personality(mut args: Vec<OsString>) -> (Personality, Vec<OsString>) {
    let of = |name: &OsString| {
        let name = Path::new(name).file_stem().and_then(|it| it.to_str());
        match name {
            Some("kube-apiserver") => Some(Personality::KubeApiserver),
            Some("etcd") => Some(Personality::Etcd),
            _ => None,
        }
    };
    if let Some(personality) = args.first().and_then(of) {
        return (personality, args);
    }
    let first = args
        .get(1)
        .filter(|it| it.to_str().is_some_and(|it| !it.contains(['/', '.'])));
    match first.and_then(of) {
        Some(personality) => {
            args.remove(0);
            (personality, args)
        }
        None => (Personality::FakeApiserver, args),
    }
}

/// Prints a line on stderr.
fn report(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Prints a line on stdout. Errors are ignored: stdout may be closed.
fn tell(line: fmt::Arguments<'_>) {
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{line}");
    let _ = stdout.flush();
}
