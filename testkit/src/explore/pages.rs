//! Lists in pages: a server that answers by smaller ones, and clients that do not ask for the next.

use std::sync::Arc;

use fake_apiserver::Verb;

use super::gate::Gate;
use super::life::Life;
use super::plan::{Action, SMALL_PAGE};
use super::trace::Request;
use super::{Oracle, Violation};

/// The parameters of a list that are about pages.
const LIMIT: &str = "limit";
const CONTINUE: &str = "continue";

/// Paging parameters of a request.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// The most objects it asks for; 0 for all.
    limit: u32,
    /// The page it asks for.
    go_on: String,
}

impl Gate {
    /// Reads what a list says of pages, and makes the page small if the plan says so.
    pub(crate) fn page(&self, about: &Request, uri: &mut http::Uri) -> Page {
        if about.verb != Verb::List {
            return Page::default();
        }
        let query = uri.query().unwrap_or_default();
        let parameter = |name: &str| query.split('&').find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
        let page = Page {
            limit: parameter(LIMIT).and_then(|it| it.parse().ok()).unwrap_or_default(),
            go_on: parameter(CONTINUE).unwrap_or_default().to_owned(),
        };
        if page.limit > SMALL_PAGE && self.plan.has(|it| it == Action::SmallPages) {
            // One page more than in the reference is no hot loop.
            self.state().allowed += 1;
            let others = query
                .split('&')
                .filter(|it| !it.starts_with("limit="))
                .map(str::to_owned);
            let query: Vec<String> = others.chain([format!("{LIMIT}={SMALL_PAGE}")]).collect();
            let text = format!("{}?{}", uri.path(), query.join("&"));
            // It was a URI before, and only digits were changed.
            *uri = text.parse().unwrap_or_else(|_| uri.clone());
        }
        page
    }

    /// Records the pages that a client still has to ask for. A list limited to one object only asks whether there is
    /// any.
    pub(crate) fn paged(&self, life: &Life, about: &Request, page: Page, go_on: &str) {
        if about.verb != Verb::List || page.limit <= 1 {
            return;
        }
        let mut state = self.state();
        let key = (Arc::clone(&life.client), about.resource.clone());
        let open = state.pages.entry(key).or_default();
        if !page.go_on.is_empty() {
            *open = open.saturating_sub(1);
        }
        if !go_on.is_empty() {
            *open += 1;
        }
    }

    /// A client that has left pages unread, in a run in which nothing kept it from reading them.
    pub(crate) fn unread_pages(&self) -> Option<Violation> {
        let has_faults = self.plan.has(|it| it != Action::SmallPages);
        if has_faults || self.skipped.contains(&Oracle::Pages) {
            return None;
        }
        let state = self.state();
        let ((client, resource), _) = state.pages.iter().find(|(_, open)| **open > 0)?;
        let what = format!("{client} lists {resource} with a limit, and does not ask for the rest");
        Some(Violation::new("all pages are read", what))
    }
}
