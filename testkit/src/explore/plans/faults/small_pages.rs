//! `small-pages`: the server responds with smaller pages to lists that have a limit.

use fake_apiserver::Verb;

use super::effects::{Effects, OnRun};
use super::large_versions::SERVER;
use super::row::{FaultRow, Kind, Names};
use super::tried::{Tried, Whole};
use super::value::{Takes, Value};

/// Maximum number of objects in a small page.
pub(crate) const SMALL_PAGE: u32 = 2;

pub(super) const ROW: FaultRow = FaultRow {
    word: "small-pages",
    takes: Takes::Nothing,
    kind: |_| Kind::Variant,
    names: Names::Fixed,
    shows_old: false,
    tried: Tried {
        whole: |trace, _| {
            let has_lists = trace.iter().any(|it| it.is_request_of(Verb::List));
            let pages = has_lists.then(|| Whole {
                rank: 4,
                at: 0,
                value: Value::Nothing,
                point: SERVER.to_owned(),
            });
            pages.into_iter().collect()
        },
        ..Tried::NEVER
    },
    effects: |_| Effects {
        run: Some(OnRun::SmallPages),
        ..Effects::NONE
    },
    words: |_, _| format!("the server limits pages of lists to {SMALL_PAGE} objects"),
};
