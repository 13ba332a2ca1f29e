//! The report as one page, which needs nothing else: verdict, plan, life lines of the objects, and the two runs side by
//! side.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::report::Report;
use super::timeline::{Cell, Row, Shown, Timeline};

const STYLE: &str = include_str!("report.css");

/// The width of a row on a life line.
const STEP: usize = 14;

/// The height of a life line.
const LINE: usize = 26;

/// The room for the names of objects.
const NAMES: usize = 260;

/// Objects that have a life line at the most: those with the most writes.
const LINES: usize = 24;

/// The page. Writing to a String does not fail, so what it returns is not looked at.
pub(crate) fn page(report: &Report) -> String {
    let mut page = String::new();
    let name = escaped(report.name());
    let _ = write!(
        page,
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>\
         <title>{name}</title><style>{STYLE}</style><main><h1>{name}</h1>"
    );
    match report.failure() {
        None => page.push_str("<p class=verdict>No failure found.</p>"),
        Some(failure) => {
            let _ = write!(
                page,
                "<p class='verdict bad'>Violated: <b>{}</b></p>",
                escaped(failure.oracle())
            );
            let _ = write!(page, "<pre class=what>{}</pre>", escaped(failure.what()));
            if let Some(went_on) = failure.went_on() {
                let _ = write!(page, "<p class=note>{}</p>", escaped(went_on));
            }
            page.push_str("<h2>Faults</h2><ol>");
            for line in failure.plan() {
                let _ = write!(page, "<li>{}</li>", escaped(&line));
            }
            let replay = escaped(&failure.replay());
            let _ = write!(page, "</ol><p>To replay: <code>EXPLORE_REPLAY='{replay}'</code></p>");
            page.push_str("<h2>Objects over time</h2><p class=note>Above: the reference run; below: the failing run. ");
            page.push_str("Filled: a write; hollow: an event or a read; red: a fault. Each column is a row below.</p>");
            life_lines(&mut page, &failure.timeline);
            page.push_str("<h2>The two runs</h2>");
            table(&mut page, &failure.timeline);
        }
    }
    let _ = write!(
        page,
        "<h2>Coverage</h2><p>{}</p>",
        escaped(&report.coverage().to_string())
    );
    for what in report.nondeterminism() {
        let _ = write!(
            page,
            "<p class=note>Uncontrolled nondeterminism: {}</p>",
            escaped(&what)
        );
    }
    for note in report.notes() {
        let _ = write!(page, "<p class=note>{}</p>", escaped(note));
    }
    page.push_str("</main></html>\n");
    page
}

fn table(page: &mut String, timeline: &Timeline) {
    page.push_str("<input type=checkbox id=all><label for=all> all rows</label><table><thead><tr>");
    for head in ["reference run", "failing run"] {
        let _ = write!(page, "<th>s<th>client<th>{head}<th>saw<th>answer");
    }
    page.push_str("</thead><tbody>");
    for shown in timeline.folded() {
        if let Some((text, rows)) = shown.folded() {
            let _ = write!(page, "<tr class=folded><td colspan=10>{text}</tr>");
            rows.iter().for_each(|row| table_row(page, row, true));
        } else if let Shown::Row(row) = shown {
            table_row(page, row, false);
        }
    }
    page.push_str("</tbody></table>");
}

fn table_row(page: &mut String, row: &Row, is_folded: bool) {
    let class = match (&row.reference, &row.failing) {
        _ if is_folded => "same",
        _ if row.is_same() => "",
        (_, Some(cell)) if cell.is_note || cell.is_struck => "fault",
        _ => "differs",
    };
    let _ = write!(page, "<tr class='{class}'>");
    columns(page, row.reference.as_ref(), "left");
    columns(page, row.failing.as_ref(), "right");
    page.push_str("</tr>");
}

fn columns(page: &mut String, cell: Option<&Cell>, side: &str) {
    let Some(cell) = cell else {
        let _ = write!(page, "<td colspan=5 class={side}>");
        return;
    };
    let lag = match cell.lag {
        Some((view, truth)) if view < truth => format!("<b class=stale>{view} of {truth}</b>"),
        Some((view, _)) => view.to_string(),
        None => String::new(),
    };
    let write = if cell.is_write { " class=write" } else { "" };
    let _ = write!(
        page,
        "<td class='time {side}'>{:.3}<td>{}<td{write}>{}<td>{lag}<td>{}",
        cell.at.as_secs_f64(),
        escaped(&cell.who),
        escaped(&cell.what),
        escaped(&cell.outcome)
    );
}

/// A line for each object and run, with a mark for each message about it.
fn life_lines(page: &mut String, timeline: &Timeline) {
    let mut writes: BTreeMap<&str, usize> = BTreeMap::new();
    let cells = |row: &'_ Row| [row.reference.clone(), row.failing.clone()];
    for cell in timeline
        .rows
        .iter()
        .flat_map(|row| [&row.reference, &row.failing])
        .flatten()
    {
        if let Some(object) = cell
            .object
            .as_deref()
            .filter(|it| it.contains(' ') && !it.ends_with('/'))
        {
            *writes.entry(object).or_default() += usize::from(cell.is_write);
        }
    }
    let mut objects: Vec<(&str, usize)> = writes.into_iter().collect();
    objects.sort_by_key(|(name, writes)| (std::cmp::Reverse(*writes), *name));
    objects.truncate(LINES);
    objects.sort();
    let (width, height) = (NAMES + STEP * (timeline.rows.len() + 1), LINE * (objects.len() + 1));
    let _ = write!(page, "<div class=lines><svg width={width} height={height}>");
    for (at, row) in timeline.rows.iter().enumerate() {
        let is_fault = row
            .failing
            .as_ref()
            .is_some_and(|it| it.is_struck || (it.is_note && row.reference.is_none()));
        if is_fault {
            let x = NAMES + STEP * at;
            let title = row
                .failing
                .as_ref()
                .map(|it| escaped(&it.to_string()))
                .unwrap_or_default();
            let _ = write!(
                page,
                "<rect class=fault x={x} y=0 width=4 height={height}><title>{title}</title></rect>"
            );
        }
    }
    for (line, (name, _)) in objects.iter().enumerate() {
        let y = LINE * line + LINE / 2;
        let _ = write!(page, "<text x=4 y={}>{}</text>", y + 4, escaped(name));
        let _ = write!(page, "<path d='M{NAMES} {}H{width}M{NAMES} {}H{width}'/>", y - 5, y + 5);
        for (at, row) in timeline.rows.iter().enumerate() {
            for (cell, y) in cells(row).into_iter().zip([y - 5, y + 5]) {
                let Some(cell) = cell.filter(|it| it.object.as_deref() == Some(name)) else {
                    continue;
                };
                let class = if cell.is_write { "write" } else { "read" };
                let x = NAMES + STEP * at;
                let title = escaped(&cell.to_string());
                let _ = write!(
                    page,
                    "<circle class={class} cx={x} cy={y} r=4><title>{title}</title></circle>"
                );
            }
        }
    }
    page.push_str("</svg></div>");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('\'', "&#39;")
}
