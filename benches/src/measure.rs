//! Measures the CPU time of the current thread or of all threads, which depends less on other load than real time.

use std::time::Duration;

use rustix::time::ClockId;

/// Returns the CPU time that this thread has used.
pub fn cpu_time() -> Duration {
    time_of(ClockId::ThreadCPUTime)
}

/// Returns the CPU time that all threads of this process have used.
pub fn process_cpu_time() -> Duration {
    time_of(ClockId::ProcessCPUTime)
}

fn time_of(clock: ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}

/// Returns `true` if figures are requested. Like criterion's benchmarks, these benchmarks run each operation only once
/// with `--test` or under `cargo test`, to check that it works.
pub fn is_measured() -> bool {
    let has = |flag| std::env::args().any(|it| it == flag);
    has("--bench") && !has("--test")
}

/// Returns `count` if figures are requested, otherwise `few`.
pub fn scaled(count: usize, few: usize) -> usize {
    if is_measured() { count } else { count.min(few) }
}

/// Runs `work`, which performs `count` operations, `rounds` times after a warm-up, and returns the median of the CPU
/// time in nanoseconds per operation. If figures are not requested, runs a single operation once.
pub fn nanos_per_operation(rounds: usize, count: usize, mut work: impl FnMut(usize) -> Duration) -> f64 {
    match is_measured() {
        true => middle_nanos(rounds, count, work),
        false => work(1).as_secs_f64() * 1e9,
    }
}

/// Same as `nanos_per_operation`, but runs all rounds even if figures are not requested.
pub fn middle_nanos(rounds: usize, count: usize, mut work: impl FnMut(usize) -> Duration) -> f64 {
    work(count.div_ceil(4));
    let mut found: Vec<f64> = (0..rounds.max(1))
        .map(|_| work(count).as_secs_f64() * 1e9 / count as f64)
        .collect();
    found.sort_by(f64::total_cmp);
    found[found.len() / 2]
}
