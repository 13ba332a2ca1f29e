//! The report as one page.

use super::report::Report;

pub(crate) fn page(report: &Report) -> String {
    format!("<pre>{report}</pre>")
}
