//! Prometheus text format, version 0.0.4: families with their help and type, and their samples.

use std::fmt::Write as _;

/// Writes a page of metrics. Families must be written in the order of their names.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
}

/// Type of a family.
#[derive(Clone, Copy, Debug)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl Exposition {
    /// Starts a family.
    pub(super) fn family(&mut self, name: &str, kind: MetricKind, help: &str) {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        // Writing to a string cannot fail.
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Writes a sample. `labels` are in the order of their names, as `expfmt` sorts them.
    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.text.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            self.text.push_str(if index == 0 { "{" } else { "," });
            self.text.push_str(label);
            self.text.push_str("=\"");
            for c in value.chars() {
                match c {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        self.text.push(' ');
        self.text.push_str(&number(value));
        self.text.push('\n');
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// Converts a count for a sample. Exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "samples of Prometheus are floats")]
pub(super) fn count(number: u64) -> f64 {
    number as f64
}

/// Formats a number like Go's `strconv.FormatFloat(…, 'g', -1, 64)`.
pub(super) fn number(value: f64) -> String {
    /// Numbers with more digits before the decimal point are written with an exponent.
    const DIGITS: i32 = 6;
    if value == 0.0 {
        return "0".to_owned();
    }
    let text = format!("{value:e}");
    let Some((digits, exponent)) = text.split_once('e') else {
        return if value.is_nan() {
            "NaN"
        } else if value > 0.0 {
            "+Inf"
        } else {
            "-Inf"
        }
        .to_owned();
    };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..DIGITS).contains(&exponent) {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(0.0, "0")]
    #[case(1.0, "1")]
    #[case(0.005, "0.005")]
    #[case(0.00001, "1e-05")]
    #[case(1.25, "1.25")]
    #[case(123_456.0, "123456")]
    #[case(1e6, "1e+06")]
    #[case(1_795_369_801.0, "1.795369801e+09")]
    #[case(f64::INFINITY, "+Inf")]
    fn numbers_are_formatted_as_in_go(#[case] value: f64, #[case] expected: &str) {
        assert_eq!(number(value), expected);
    }
}
