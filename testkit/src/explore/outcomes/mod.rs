//! Outcomes: the results of runs, in a form that can be compared with other runs.

mod finding;
mod nondeterminism;
mod outcome;
mod doing;
mod recorded;
mod violation;
mod milestone;
mod key;
mod end_state;
mod difference;
mod pair;
mod outside;
mod counts;
mod failures;
mod observed;
mod groups;
mod permutations;
mod unordered;
mod identities;
mod versions;
mod sameness;
mod derived;
mod rollouts;
mod times;
mod canonical;
mod leaves;
mod generated;
mod headline;
mod skipped;

pub(crate) use counts::Count;
pub(crate) use derived::Deciders;
pub(crate) use doing::Doing;
pub(crate) use end_state::{EndState, Judged, plain_key};
pub(crate) use finding::Finding;
pub(crate) use generated::Generated;
pub(crate) use headline::{LeftAfter, end_differently, headline};
pub(crate) use identities::{generate_name, has_time_in_name, resource};
pub(crate) use key::resource_of;
pub(crate) use leaves::leaves;
pub(crate) use milestone::{Milestone, Passed};
pub(crate) use nondeterminism::Nondeterminism;
pub(crate) use observed::history;
pub(crate) use outcome::{Outcome, Reference, Returned, Uids, Wrote, grouped};
pub(crate) use recorded::{Bodies, Recorded};
pub(crate) use times::{ForeignTime, NEAR, OTHER_CLOCK, foreign_times, is_time, timed};
pub(crate) use unordered::by_keys;
pub(crate) use violation::{
    ALWAYS, ASSERTIONS, CRASHABLE, CREATES_AND_DELETES, DELETES_BY_NAME, ENDS, EVENTUALLY, EXPLORABLE, HOT_LOOP,
    NO_PANIC, PLAYABLE, SETTLES, Violation,
};
