//! `Struck`: the effects of faults on one request, before and after it is handled.

use super::{Faults, Held, Seen, Verdict, When};
use crate::api::status::Status;

/// Type of connection failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The connection is refused.
    Refused,
    /// The connection is reset.
    Reset,
    /// The connection stays open without a response.
    Silent,
}

/// Final outcome of a request.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The server's response, unchanged.
    AsIs,
    /// This Status instead of the server's response.
    Instead(Box<Status>),
    /// The server's response, truncated after this number of bytes.
    Truncated(usize),
    /// A connection failure instead of a response.
    Broken(Broken),
}

/// The verdicts that have affected a request, and a verdict that is applied to its response.
#[derive(Debug, Default)]
pub(crate) struct Struck {
    /// The verdict on the response, applied after the request is handled.
    later: Option<Verdict>,
    /// Descriptions of the verdicts, for the journal.
    pub(crate) verdicts: Vec<String>,
    /// The successful response that was not sent, if any.
    pub(crate) lost: Option<Lost>,
}

/// A successful response that was not sent because of a fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    /// The revision of the stored object in the response, if there is one.
    pub(crate) revision: Option<u64>,
}

impl Faults {
    /// Evaluates the rules for a request, and waits while they hold or delay the request. A restart of the server in
    /// the meantime breaks the connection. If this returns an outcome, the request must not be handled.
    pub(crate) async fn before(&self, request: Seen<'_>, struck: &mut Struck) -> Option<Outcome> {
        let mut verdict = self.rules.verdict(&request);
        loop {
            struck.note(&verdict);
            verdict = match verdict {
                Verdict::Pass => return None,
                Verdict::Fail(status) => return Some(Outcome::Instead(status)),
                Verdict::Refuse => return Some(Outcome::Broken(Broken::Refused)),
                Verdict::Reset(When::Before) => return Some(Outcome::Broken(Broken::Reset)),
                Verdict::Hang(When::Before) => return Some(Outcome::Broken(Broken::Silent)),
                Verdict::Delay(time) => match self.downtime.precedes(tokio::time::sleep(time)).await {
                    Some(()) => return None,
                    None => return Some(struck.restarted()),
                },
                Verdict::Held(held) => match self.downtime.precedes(held).await {
                    Some(decided) => decided,
                    None => return Some(struck.restarted()),
                },
                later @ (Verdict::Lose(_)
                | Verdict::DelayAnswer(_)
                | Verdict::Reset(When::After)
                | Verdict::Hang(When::After)
                | Verdict::Truncate(_)
                | Verdict::HeldAnswer(_)) => {
                    struck.later = Some(later);
                    return None;
                }
            }
        }
    }

    /// Returns the outcome of a handled request, after waiting for a delay or a decision. A restart of the server in
    /// the meantime breaks the connection.
    pub(crate) async fn after(&self, struck: &mut Struck) -> Outcome {
        let Some(mut verdict) = struck.later.take() else {
            return Outcome::AsIs;
        };
        loop {
            let held: Held = match verdict {
                Verdict::Pass => return Outcome::AsIs,
                Verdict::Fail(status) | Verdict::Lose(status) => return Outcome::Instead(status),
                Verdict::Refuse | Verdict::Reset(_) => return Outcome::Broken(Broken::Reset),
                Verdict::Hang(_) => return Outcome::Broken(Broken::Silent),
                Verdict::Truncate(bytes) => return Outcome::Truncated(bytes),
                Verdict::Delay(time) | Verdict::DelayAnswer(time) => {
                    return match self.downtime.precedes(tokio::time::sleep(time)).await {
                        Some(()) => Outcome::AsIs,
                        None => struck.restarted(),
                    };
                }
                Verdict::Held(held) | Verdict::HeldAnswer(held) => held,
            };
            let Some(decided) = self.downtime.precedes(held).await else {
                return struck.restarted();
            };
            verdict = decided;
            struck.note(&verdict);
        }
    }
}

impl Struck {
    fn note(&mut self, verdict: &Verdict) {
        if !matches!(verdict, Verdict::Pass) {
            self.verdicts.push(verdict.to_string());
        }
    }

    /// Returns the outcome of a request after a restart of the server has broken its connection.
    fn restarted(&mut self) -> Outcome {
        self.verdicts
            .push("connection reset by a restart of the server".to_owned());
        Outcome::Broken(Broken::Reset)
    }
}
