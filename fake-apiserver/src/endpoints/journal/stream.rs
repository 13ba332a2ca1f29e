//! `pages`: the journal as it grows, for a reader that may be slower than it.

use std::time::Duration;

use futures::Stream;
use futures::stream::unfold;
use tokio::time::{sleep, timeout};

use super::{Journal, JournalPage};

/// Entries in one page.
const ENTRIES: usize = 1_000;

/// Time from one page to the next: what comes meanwhile is gathered, so that a busy server has few large pages.
const GATHERING: Duration = Duration::from_millis(50);

/// Silence after which an empty page is made, by which both ends learn that the other is there.
const SILENCE: Duration = Duration::from_secs(15);

/// The entries from the number `since` on, then those that come. The stream is a cursor and has no buffer: where its
/// reader is slow, entries that the journal drops are missing, and the number of the next page's first entry tells.
pub(crate) fn pages(journal: Journal, since: u64) -> impl Stream<Item = JournalPage> + Send {
    // A reader that knew an earlier server begins where this one is.
    let since = since.min(journal.total());
    let begin = (journal, since, false);
    unfold(begin, |(journal, next, has_begun)| async move {
        if has_begun {
            sleep(GATHERING).await;
        }
        // After a silence of that time the page is empty.
        let _ = timeout(SILENCE, journal.reached(next + 1)).await;
        let page = journal.page(next, ENTRIES);
        let next = page.next();
        Some((page, (journal, next, true)))
    })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::StreamExt as _;
    use http::Request;

    use super::*;
    use crate::ApiServer;

    #[tokio::test(start_paused = true)]
    async fn pages_gather_and_name_the_entries_that_are_missing() {
        let server = ApiServer::builder().journal_capacity(1_500).start();
        let ask = async |times: usize| {
            for _ in 0..times {
                server.call(Request::get("/version").body("").expect("a request")).await;
            }
        };
        ask(1).await;
        let mut pages = pin!(pages(server.journal().clone(), 0));
        let mut next = async || {
            let page = pages.next().await.expect("it has no end");
            (page.first, page.entries.len(), page.total)
        };
        assert_eq!(next().await, (0, 1, 1));
        ask(3).await;
        assert_eq!(next().await, (1, 3, 4), "one page for what came");
        assert_eq!(next().await, (4, 0, 4), "a sign of life");
        ask(1_600).await;
        assert_eq!(next().await, (104, 1_000, 1_604), "a hundred are gone");
        assert_eq!(next().await, (1_104, 500, 1_604));
    }
}
