//! Paginated lists: smaller pages as a fault, and the pages that clients have not read yet.

use std::sync::Arc;

use fake_apiserver::Verb;

use super::decide::Gate;
use super::life::Life;
use crate::explore::plans::{OnRun, SMALL_PAGE};
use crate::explore::trace::Request;

/// Query parameters for pages.
const LIMIT: &str = "limit";
const CONTINUE: &str = "continue";

/// Paging parameters of a request.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// Maximum number of objects in the response; 0 for all.
    limit: u32,
    /// The `continue` token of the request.
    go_on: String,
}

impl Gate {
    /// Parses the paging parameters of a list request, and lowers the limit if the plan requires small pages.
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
        if page.limit > SMALL_PAGE && self.plan.has(OnRun::SmallPages) {
            // The additional page does not count towards the limit for hot loops.
            self.state().allowed += 1;
            let others = query
                .split('&')
                .filter(|it| !it.starts_with("limit="))
                .map(str::to_owned);
            let query: Vec<String> = others.chain([format!("{LIMIT}={SMALL_PAGE}")]).collect();
            let text = format!("{}?{}", uri.path(), query.join("&"));
            // The URI remains valid, because only the limit was changed.
            *uri = text.parse().unwrap_or_else(|_| uri.clone());
        }
        page
    }

    /// Counts the lists with pages that a client has not read yet. A list with a limit of one only checks for
    /// existence, so it is not counted.
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
}
