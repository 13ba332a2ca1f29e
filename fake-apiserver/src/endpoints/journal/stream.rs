//! `pages`: streams the journal to a reader that may be slower than the server.

use std::time::Duration;

use futures::Stream;
use futures::stream::unfold;
use tokio::time::{sleep, timeout};

use super::{Journal, JournalPage};

/// Maximum number of entries in a page.
const ENTRIES: usize = 1_000;

/// Interval between pages. Entries are collected during the interval, so that a busy server sends few large pages.
const GATHERING: Duration = Duration::from_millis(50);

/// Idle time after which an empty page is sent, so that both ends detect a broken connection.
const SILENCE: Duration = Duration::from_secs(15);

/// Streams the entries from the number `since` on, followed by new ones. The stream is a cursor without a buffer. If
/// its reader is slow, entries that the journal has dropped are missing, and the number of the next page's first entry
/// is higher than expected.
pub(crate) fn pages(journal: Journal, since: u64) -> impl Stream<Item = JournalPage> + Send {
    // A number from a previous run of the server may exceed the total; then the stream starts at the end.
    let since = since.min(journal.total());
    let begin = (journal, since, false);
    unfold(begin, |(journal, next, has_begun)| async move {
        if has_begun {
            sleep(GATHERING).await;
        }
        // If the wait times out, the page is empty.
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
    async fn journal_pages_contain_new_entries_and_skip_dropped_entries() {
        let server = ApiServer::builder().journal_capacity(1_500).start();
        let ask = async |times: usize| {
            for _ in 0..times {
                server
                    .call(Request::get("/version").body("").expect("the request is valid"))
                    .await;
            }
        };
        ask(1).await;
        let mut pages = pin!(pages(server.journal().clone(), 0));
        let mut next = async || {
            let page = pages.next().await.expect("the stream continues");
            (page.first, page.entries.len(), page.total)
        };
        assert_eq!(next().await, (0, 1, 1));
        ask(3).await;
        assert_eq!(next().await, (1, 3, 4), "new entries are sent as one page");
        assert_eq!(next().await, (4, 0, 4), "an empty page shows that the stream is alive");
        ask(1_600).await;
        assert_eq!(next().await, (104, 1_000, 1_604), "a hundred entries were dropped");
        assert_eq!(next().await, (1_104, 500, 1_604));
    }
}
