//! `Recorded`: data of a run that is only recorded if the run is part of a report.

use std::collections::BTreeMap;

use bytes::Bytes;
use fake_apiserver::trace::Marks;

/// The bodies and the tracing output of a run.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    /// The bodies of each request, by its index in the trace.
    pub(crate) bodies: BTreeMap<usize, Bodies>,
    /// The tracing output. Positions in it are indexes of steps in the trace of the run.
    pub(crate) marks: Marks,
}

/// The bodies of a request and its response.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bodies {
    pub(crate) request: Bytes,
    /// Body of the response; empty without a response.
    pub(crate) answer: Bytes,
}
