//! SIGTERM and SIGINT in separate processes: each test runs itself again as a child process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use informer::runtime::{Manager, run_always, shutdown_signal};
use rustix::process::{Pid, Signal, kill_process};

/// Environment variable that marks the child process, which receives the signals.
const CHILD: &str = "INFORMER_SIGNALS_CHILD";

/// The child process, for its parent.
struct Process {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Runs this test again in a child process.
    fn start(test: &str) -> Self {
        let program = std::env::current_exe().expect("the test has an executable");
        let mut child = Command::new(program)
            .args(["--exact", test, "--nocapture"])
            .env(CHILD, "1")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the process starts");
        let lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        Self { child, lines }
    }

    /// Waits until the process prints a line that ends with `what`.
    fn says(&mut self, what: &str) {
        let mut lines = self.lines.by_ref().map_while(Result::ok);
        assert!(
            lines.any(|line| line.ends_with(what)),
            "the process exited without the output {what:?}"
        );
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the process runs");
    }

    fn ended(mut self) -> ExitStatus {
        self.child.wait().expect("the process ends")
    }
}

fn say(what: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "{what}")
        .and_then(|()| out.flush())
        .expect("the parent process reads stdout");
}

/// Runs a manager in the child process until a signal arrives. When its runnable stops, it awaits `leave`.
fn child(leave: impl Future<Output = ()> + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("the runtime can be built").block_on(async {
        let never = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, kube::Error>>()
        });
        let manager = Manager::new(kube::Client::new(never, "default"));
        let task = run_always("task", |stop| async move {
            say("running");
            stop.cancelled().await;
            say("stopping");
            leave.await;
            Ok(())
        });
        manager.add(task).expect("the runnable is accepted");
        let signal = shutdown_signal().expect("signal handlers can be installed");
        manager.run(signal).await.expect("the manager stops within its timeout");
    });
    say("stopped");
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

#[test]
fn first_signal_starts_an_orderly_shutdown() {
    if is_child() {
        return child(std::future::ready(()));
    }
    for signal in [Signal::TERM, Signal::INT] {
        let mut process = Process::start("signals::first_signal_starts_an_orderly_shutdown");
        process.says("running");
        process.signal(signal);
        process.says("stopping");
        process.says("stopped");
        assert!(process.ended().success());
    }
}

#[test]
fn second_signal_ends_the_process_with_code_1() {
    if is_child() {
        return child(std::future::pending());
    }
    let mut process = Process::start("signals::second_signal_ends_the_process_with_code_1");
    process.says("running");
    process.signal(Signal::TERM);
    process.says("stopping");
    process.signal(Signal::INT);
    assert_eq!(process.ended().code(), Some(1));
}
