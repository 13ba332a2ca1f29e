//! Creates plots of cost against size, as SVG: `cargo bench -p benches --bench growth`. With `-- managers crds`,
//! creates only these plots. With `-- DIRECTORY`, writes to this directory instead of `benches/plots`.

#![expect(clippy::print_stdout, reason = "it says what it wrote")]

use std::path::{Path, PathBuf};

use benches::growth::{FILES, plot};
use benches::measure::{is_measured, scaled};
use benches::plot::svg;

fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with("--")).collect();
    let (names, folders): (Vec<_>, Vec<_>) = words.into_iter().partition(|it| FILES.contains(&it.as_str()));
    let folder = folders.first().map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("plots"),
        PathBuf::from,
    );
    let churn = Path::new(env!("CARGO_BIN_EXE_churn"));
    for file in FILES {
        if !names.is_empty() && !names.iter().any(|it| it == file) {
            continue;
        }
        let plot = plot(file, scaled(100_000, 10), churn);
        // Some systems do not report the memory of a process.
        if plot.lines.iter().all(|line| line.points.is_empty()) {
            continue;
        }
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
