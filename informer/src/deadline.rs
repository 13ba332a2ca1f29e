//! Deadlines of time limits that may be unlimited (`Duration::MAX`).

use std::time::Duration;

use tokio::time::Instant;

/// Time until a deadline that is never reached, as in tokio's timers.
const NEVER: Duration = Duration::from_secs(86_400 * 365 * 30);

/// Returns the time at which `limit` has passed since `start`.
pub(crate) fn after(start: Instant, limit: Duration) -> Instant {
    start.checked_add(limit.min(NEVER)).unwrap_or(start)
}
