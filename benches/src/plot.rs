//! Plots lines on two logarithmic axes, as SVG.

use std::fmt::Write;

/// A line with its name and its points. All numbers must be positive.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name of the line.
    pub name: &'static str,
    /// Pairs of size and cost.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const MARGIN: f64 = 60.0;
/// Width of the space for the names of the lines, to the right of the plot.
const LEGEND: f64 = 230.0;
const COLOURS: [&str; 6] = ["#1b6ca8", "#c8553d", "#2a9d4a", "#8a4fb5", "#b8860b", "#555555"];

/// A range of powers of ten, and its position on the page.
struct Axis {
    first: f64,
    last: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (mut first, mut last) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.map(f64::log10) {
            (first, last) = (first.min(value.floor()), last.max(value.ceil()));
        }
        let last = last.max(first + 1.0);
        Self { first, last, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        self.from + (value.log10() - self.first) / (self.last - self.first) * (self.to - self.from)
    }

    /// Returns the powers of ten in the range.
    fn powers(&self) -> impl Iterator<Item = f64> + use<> {
        (self.first as i32..=self.last as i32).map(|it| 10f64.powi(it))
    }
}

/// Unit of the costs in a plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Time.
    Nanoseconds,
    /// Memory.
    Bytes,
}

/// Draws a plot. `right` is the label of the horizontal axis.
pub fn svg(title: &str, right: &str, unit: Unit, series: &[Series]) -> String {
    let points = || series.iter().flat_map(|it| &it.points);
    let x = Axis::over(points().map(|it| it.0), MARGIN, WIDTH - LEGEND);
    let y = Axis::over(points().map(|it| it.1), HEIGHT - MARGIN, MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{MARGIN}\" y=\"28\" font-size=\"15\">{title}</text>\n"
    );
    let (left, bottom, end, top) = (MARGIN, HEIGHT - MARGIN, WIDTH - LEGEND, MARGIN);
    for power in x.powers() {
        let at = x.place(power);
        // Writing into a String cannot fail.
        let _ = writeln!(
            out,
            "<path d=\"M{at:.1} {top}V{bottom}\" stroke=\"#ddd\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{power}</text>",
            bottom + 18.0
        );
    }
    for power in y.powers() {
        let at = y.place(power);
        let _ = writeln!(
            out,
            "<path d=\"M{left} {at:.1}H{end}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 6.0,
            at + 4.0,
            unit.label(power)
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{right}</text>",
        (left + end) / 2.0,
        HEIGHT - 18.0
    );
    for (at, it) in series.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let line = it
            .points
            .iter()
            .map(|(a, b)| format!("{:.1},{:.1}", x.place(*a), y.place(*b)));
        let _ = writeln!(
            out,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
            line.collect::<Vec<_>>().join(" "),
            end + 12.0,
            top + 16.0 + 18.0 * at as f64,
            it.name
        );
    }
    out.push_str("</svg>\n");
    out
}

impl Unit {
    /// Formats a power of ten for the axis.
    fn label(self, power: f64) -> String {
        let names = match self {
            Self::Nanoseconds => ["ns", "µs", "ms", "s"],
            Self::Bytes => ["B", "KB", "MB", "GB"],
        };
        let thousands = ((power.log10() / 3.0).max(0.0) as usize).min(names.len() - 1);
        format!("{} {}", power / 1000f64.powi(thousands as i32), names[thousands])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plot_axes_end_at_powers_of_ten() {
        let line = Series {
            name: "a line",
            points: vec![(1.0, 100.0), (10.0, 1000.0)],
        };
        let svg = svg("a plot", "objects", Unit::Nanoseconds, std::slice::from_ref(&line));
        assert!(svg.contains("points=\"60.0,340.0 490.0,60.0\""), "{svg}");
        assert!(svg.contains(">100 ns<") && svg.contains(">1 µs<"), "{svg}");
        let svg = super::svg("a plot", "minutes", Unit::Bytes, &[line]);
        assert!(svg.contains(">100 B<") && svg.contains(">1 KB<"), "{svg}");
    }
}
