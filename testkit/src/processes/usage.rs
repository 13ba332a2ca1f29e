//! `Usage`: processor time and memory used by the controllers of all runs.

use std::fs;
use std::sync::Mutex;
use std::time::Duration;

use crate::lock::lock;

/// Clock ticks per second in `/proc`; the same on all common architectures of Linux.
const TICKS: u64 = 100;

/// Resources used by processes so far.
#[derive(Debug, Default)]
pub(crate) struct Usage(Mutex<Used>);

/// Numbers of runs, the processor time of all processes, and the peak memory of the largest process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    /// Number of runs that were started.
    pub(crate) runs: u64,
    /// Number of runs that have ended, and the sum of their durations.
    pub(crate) ended: (u32, Duration),
    pub(crate) processor: Duration,
    pub(crate) memory_bytes: u64,
}

impl Usage {
    /// Adds the resources used by a process that still exists or has just exited. Does nothing on systems without
    /// `/proc`.
    pub(crate) fn add(&self, process: u32) {
        let mut used = lock(&self.0);
        used.processor += processor(&format!("/proc/{process}/stat")).unwrap_or_default();
        let memory = memory(process).unwrap_or_default();
        used.memory_bytes = used.memory_bytes.max(memory);
    }

    /// Counts a started run.
    pub(crate) fn begin(&self) {
        lock(&self.0).runs += 1;
    }

    /// Counts a completed run, and adds its duration to the total.
    pub(crate) fn end(&self, took: Duration) {
        let (runs, sum) = &mut lock(&self.0).ended;
        *runs += 1;
        *sum += took;
    }

    pub(crate) fn used(&self) -> Used {
        *lock(&self.0)
    }
}

/// Reads the processor time from a `stat` file: user and system time, including ended children.
fn processor(path: &str) -> Option<Duration> {
    let text = fs::read_to_string(path).ok()?;
    // The program's name is in parentheses and may contain any character.
    let (_, fields) = text.rsplit_once(')')?;
    let fields = fields.split_whitespace().skip(11).take(4);
    let ticks: u64 = fields.filter_map(|it| it.parse::<u64>().ok()).sum();
    Some(Duration::from_millis(ticks * 1_000 / TICKS))
}

/// Returns the time for which the threads of a process have run or waited for a processor, and whether one of them is
/// doing so now; zero and `false` without `/proc`.
pub(crate) fn busy(process: u32) -> (Duration, bool) {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    let (mut nanoseconds, mut is_running) = (0, false);
    for thread in threads.flatten() {
        let read = |file| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        // The file contains the nanoseconds of running and of waiting, and the number of time slices.
        let times = read("schedstat");
        nanoseconds += times
            .split_whitespace()
            .take(2)
            .filter_map(|it| it.parse::<u64>().ok())
            .sum::<u64>();
        // The state follows the name, which is in parentheses and may contain any character.
        is_running |= read("stat")
            .rsplit_once(") ")
            .is_some_and(|(_, state)| state.starts_with('R'));
    }
    (Duration::from_nanos(nanoseconds), is_running)
}

/// Reads the peak memory of a process.
fn memory(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|it| it.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1_024)
}

/// Returns the load average of the last minute; `None` without `/proc`.
pub(crate) fn load() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Returns the CPU time used by all processes since boot; `None` without `/proc`.
pub(crate) fn of_the_machine() -> Option<Duration> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().filter_map(|it| it.parse().ok()).collect();
    // The fields are user, nice, system, idle, iowait, irq and softirq.
    let busy: u64 = [0, 1, 2, 5, 6].into_iter().filter_map(|at| ticks.get(at)).sum();
    Some(Duration::from_millis(busy * 1_000 / TICKS))
}
