//! The command `fake-apiserver`: an API server for kubectl and every other client, until it is interrupted.
//!
//! The same program is `kube-apiserver` and `etcd` when it is called by these names, so that what starts a control
//! plane from a folder of programs starts this one; `assets` makes such a folder.

mod args;
mod audit;
mod feature_gates;
mod front_proxy;
mod assets;
mod etcd;
mod fake;
mod kube_apiserver;
mod log;
mod other_flags;
mod rotation;
mod setup;

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;

/// Gives back to the system what was freed, where that of the C library keeps the most it ever had.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The program by the name it was called by.
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
            Err(unknown) => unknown.exit(),
        },
        Personality::Etcd => etcd::run(&etcd::parse(args)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            report(format_args!("error: {reason}"));
            ExitCode::FAILURE
        }
    }
}

/// The personality that the name of the program or its first argument asks for, and the arguments that are left.
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

/// A line on stderr.
fn report(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Prints a line on stdout. A closed stdout is ignored: there is nobody left to report it to.
fn tell(line: fmt::Arguments<'_>) {
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{line}");
    let _ = stdout.flush();
}
