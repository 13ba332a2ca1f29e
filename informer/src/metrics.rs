//! `Metrics`: the metrics of a process, in the Prometheus text format.
//!
//! Code on hot paths does not look up metrics by name. Each component counts in plain fields, and writes the values
//! into [`Samples`] when metrics are collected.
//!
//! ```
//! use std::sync::Arc;
//! use informer::metrics::{Collect, Metrics, Samples};
//!
//! struct Backlog(u64);
//!
//! impl Collect for Backlog {
//!     fn collect(&self, samples: &mut Samples) {
//!         samples.gauge("shop_backlog", "Orders that wait.", &[("shop", "north")], self.0 as f64);
//!     }
//! }
//!
//! let metrics = Metrics::new();
//! let backlog: Arc<dyn Collect> = Arc::new(Backlog(3));
//! metrics.register(&backlog);
//! assert_eq!(
//!     metrics.render(),
//!     "# HELP shop_backlog Orders that wait.\n# TYPE shop_backlog gauge\nshop_backlog{shop=\"north\"} 3\n"
//! );
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// A component that has metrics.
pub trait Collect: Send + Sync {
    /// Writes the current values of the metrics.
    fn collect(&self, samples: &mut Samples);
}

/// The metrics of a process or of a test. Clones share the same registry.
#[derive(Clone, Default)]
pub struct Metrics {
    /// Guards the list of collectors. Dropped collectors are removed.
    collectors: Arc<Mutex<Vec<Weak<dyn Collect>>>>,
}

impl Metrics {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a collector, unless it is registered already. It is removed when its last reference is dropped.
    pub fn register(&self, collector: &Arc<dyn Collect>) {
        let mut collectors = self.collectors.lock().unwrap_or_else(PoisonError::into_inner);
        collectors.retain(|it| it.strong_count() > 0 && !std::ptr::addr_eq(it.as_ptr(), Arc::as_ptr(collector)));
        collectors.push(Arc::downgrade(collector));
    }

    /// Renders all metrics in the Prometheus text format, version 0.0.4: families sorted by name, series sorted by
    /// labels.
    pub fn render(&self) -> String {
        let collectors = self.collectors.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut samples = Samples::default();
        for collector in collectors.iter().filter_map(Weak::upgrade) {
            collector.collect(&mut samples);
        }
        samples.to_string()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// The values of all metrics at a point in time. If several collectors have a series with the same labels, for example
/// because two clients are counted in one registry, their values are added.
#[derive(Debug, Default)]
pub struct Samples {
    families: BTreeMap<&'static str, Family>,
    /// Addresses of the components that [`is_first_of`](Self::is_first_of) was called for.
    visited: BTreeSet<usize>,
}

#[derive(Debug)]
struct Family {
    help: &'static str,
    kind: &'static str,
    /// The samples of each series, by labels. The string of a sample is the suffix of its name (`_bucket`, `_sum`,
    /// `_count` or none), followed by its labels in braces.
    series: BTreeMap<String, Vec<(String, f64)>>,
}

impl Samples {
    /// Adds a counter with its current value. If the series exists, the values are added.
    pub fn counter(&mut self, name: &'static str, help: &'static str, labels: &[(&str, &str)], value: f64) {
        self.add(name, help, "counter", labels, |labels| vec![(braced(labels), value)]);
    }

    /// Adds a gauge with its current value. If the series exists, the values are added, so gauges for which a sum has
    /// no meaning, such as timestamps, need a label for each collector.
    pub fn gauge(&mut self, name: &'static str, help: &'static str, labels: &[(&str, &str)], value: f64) {
        self.add(name, help, "gauge", labels, |labels| vec![(braced(labels), value)]);
    }

    /// Adds a histogram with its current values. If the series exists, the values are added.
    pub fn histogram(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
        histogram: &Histogram,
    ) {
        self.add(name, help, "histogram", labels, |labels| {
            let comma = if labels.is_empty() { "" } else { "," };
            let mut lines = Vec::with_capacity(histogram.counts.len() + 2);
            let mut sum = 0;
            let bounds = histogram.bounds.iter().copied().chain([f64::INFINITY]);
            for (bound, count) in bounds.zip(&histogram.counts) {
                sum += count;
                let bound = number(bound);
                lines.push((format!("_bucket{{{labels}{comma}le=\"{bound}\"}}"), sum as f64));
            }
            lines.push((format!("_sum{}", braced(labels)), histogram.sum));
            lines.push((format!("_count{}", braced(labels)), sum as f64));
            lines
        });
    }

    /// Returns `true` if this is the first call for `component`, so that a component that is registered both directly
    /// and as a part of another component is only counted once.
    pub(crate) fn is_first_of<T>(&mut self, component: &T) -> bool {
        self.visited.insert(std::ptr::from_ref(component).addr())
    }

    /// Adds a gauge that measures the worst case. If several collectors have this series, the highest value is kept.
    pub(crate) fn highest(&mut self, name: &'static str, help: &'static str, labels: &[(&str, &str)], value: f64) {
        self.combine(name, help, "gauge", labels, f64::max, |labels| {
            vec![(braced(labels), value)]
        });
    }

    fn add(
        &mut self,
        name: &'static str,
        help: &'static str,
        kind: &'static str,
        labels: &[(&str, &str)],
        lines: impl FnOnce(&str) -> Vec<(String, f64)>,
    ) {
        self.combine(name, help, kind, labels, |one, other| one + other, lines);
    }

    fn combine(
        &mut self,
        name: &'static str,
        help: &'static str,
        kind: &'static str,
        labels: &[(&str, &str)],
        combined: impl Fn(f64, f64) -> f64,
        lines: impl FnOnce(&str) -> Vec<(String, f64)>,
    ) {
        let family = self.families.entry(name).or_insert_with(|| Family {
            help,
            kind,
            series: BTreeMap::new(),
        });
        let labels: Vec<_> = labels
            .iter()
            .map(|(key, value)| format!("{key}=\"{}\"", escaped(value)))
            .collect();
        let labels = labels.join(",");
        let lines = lines(&labels);
        let known = family.series.entry(labels).or_default();
        for (suffix, value) in lines {
            match known.iter_mut().find(|(of, _)| *of == suffix) {
                Some((_, sum)) => *sum = combined(*sum, value),
                None => known.push((suffix, value)),
            }
        }
    }
}

impl fmt::Display for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, family) in &self.families {
            writeln!(f, "# HELP {name} {}\n# TYPE {name} {}", family.help, family.kind)?;
            for (suffix, value) in family.series.values().flatten() {
                writeln!(f, "{name}{suffix} {}", number(*value))?;
            }
        }
        Ok(())
    }
}

fn braced(labels: &str) -> String {
    if labels.is_empty() {
        String::new()
    } else {
        format!("{{{labels}}}")
    }
}

fn number(value: f64) -> String {
    if value == f64::INFINITY {
        "+Inf".to_owned()
    } else {
        value.to_string()
    }
}

fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for char in value.chars() {
        match char {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            char => {
                let _ = text.write_char(char);
            }
        }
    }
    text
}

/// Histogram with fixed buckets.
#[derive(Clone, Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// Number of values in each bucket, followed by the number of values above all bounds.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// Creates an empty histogram. `bounds` are inclusive upper bounds, in ascending order.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len() + 1],
            sum: 0.0,
        }
    }

    /// Adds a value.
    pub fn observe(&mut self, value: f64) {
        let at = self.bounds.partition_point(|bound| *bound < value);
        self.counts[at] += 1;
        self.sum += value;
    }

    /// Adds a duration, in seconds.
    pub fn observe_time(&mut self, time: Duration) {
        self.observe(time.as_secs_f64());
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_series_from_several_collectors_are_added() {
        let mut histogram = Histogram::new(&[1.0]);
        histogram.observe(0.5);
        let mut samples = Samples::default();
        for value in [2.0, 3.0] {
            samples.counter("a_total", "A.", &[("name", "n")], value);
            samples.gauge("b", "B.", &[], value);
            samples.histogram("c", "C.", &[], &histogram);
        }
        assert_eq!(
            samples.to_string(),
            "# HELP a_total A.\n# TYPE a_total counter\na_total{name=\"n\"} 5\n\
             # HELP b B.\n# TYPE b gauge\nb 5\n\
             # HELP c C.\n# TYPE c histogram\n\
             c_bucket{le=\"1\"} 2\nc_bucket{le=\"+Inf\"} 2\nc_sum 1\nc_count 2\n"
        );
    }

    #[test]
    fn histogram_has_the_text_format_of_prometheus() {
        let mut histogram = Histogram::new(&[0.1, 1.0]);
        for value in [0.05, 0.1, 0.5, 7.0] {
            histogram.observe(value);
        }
        let mut samples = Samples::default();
        samples.histogram("took_seconds", "Time.", &[("name", "a\"b")], &histogram);
        assert_eq!(
            samples.to_string(),
            "# HELP took_seconds Time.\n# TYPE took_seconds histogram\n\
             took_seconds_bucket{name=\"a\\\"b\",le=\"0.1\"} 2\n\
             took_seconds_bucket{name=\"a\\\"b\",le=\"1\"} 3\n\
             took_seconds_bucket{name=\"a\\\"b\",le=\"+Inf\"} 4\n\
             took_seconds_sum{name=\"a\\\"b\"} 7.65\n\
             took_seconds_count{name=\"a\\\"b\"} 4\n"
        );
    }
}
