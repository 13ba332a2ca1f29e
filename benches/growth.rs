//! Plots of cost against size, as SVG: `cargo bench -p benches --bench growth`, or `… -- --bench DIRECTORY` to have them
//! elsewhere than in `benches/plots`.

#![expect(clippy::print_stdout, reason = "it says what it wrote")]

use std::path::{Path, PathBuf};

use benches::growth::plots;
use benches::measure::{is_measured, scaled};
use benches::plot::svg;

fn main() -> std::io::Result<()> {
    let folder = std::env::args().skip(1).find(|it| !it.starts_with("--"));
    let folder = folder.map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("plots"),
        PathBuf::from,
    );
    let churn = Path::new(env!("CARGO_BIN_EXE_churn"));
    for plot in plots(scaled(100_000, 10), churn) {
        for line in &plot.lines {
            println!("{}, {}: {:.0?}", plot.title, line.name, line.points);
        }
        if is_measured() {
            std::fs::create_dir_all(&folder)?;
            std::fs::write(
                folder.join(plot.file).with_extension("svg"),
                svg(plot.title, plot.axis, plot.unit, &plot.lines),
            )?;
        }
    }
    Ok(())
}
