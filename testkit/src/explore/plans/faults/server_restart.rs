//! `server-restart`: the API server restarts before a request, and loses its history of events.

use super::effects::{Effects, OnRequest};
use super::row::{FaultRow, Kind, Names};
use super::tried::{SHORT, Tried, at};
use super::value::Takes;

pub(super) const ROW: FaultRow = FaultRow {
    word: "server-restart",
    takes: Takes::Time,
    kind: |_| Kind::Process,
    names: Names::Message,
    shows_old: false,
    tried: Tried {
        writes: &[at(4, SHORT)],
        ..Tried::NEVER
    },
    effects: |down| Effects {
        request: Some(OnRequest::RestartServer(down.time())),
        ..Effects::NONE
    },
    words: |it, down| {
        format!(
            "restart the API server before {} of {}; the server is down for {:?}, and clients must list again",
            it.what,
            it.client,
            down.time()
        )
    },
};
