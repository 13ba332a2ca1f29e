//! `Cpu`: a criterion measurement of the CPU time of a thread.

use std::time::Duration;

use criterion::Criterion;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};

use crate::measure::cpu_time;

/// Measures the CPU time of the current thread.
#[derive(Debug)]
pub struct Cpu;

impl Cpu {
    /// Returns a criterion with this measurement, configured for short runs.
    pub fn criterion() -> Criterion<Self> {
        Criterion::default()
            .with_measurement(Self)
            .sample_size(20)
            .warm_up_time(Duration::from_millis(300))
            .measurement_time(Duration::from_secs(1))
    }
}

impl Measurement for Cpu {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        cpu_time()
    }

    fn end(&self, start: Duration) -> Duration {
        cpu_time() - start
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        // This formatter expects nanoseconds, the unit of this measurement.
        WallTime.formatter()
    }
}
