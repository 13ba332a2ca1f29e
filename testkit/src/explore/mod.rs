//! Every failure a controller can meet, in one test.
//!
//! See [`explore`] for the guide.

mod baseline;
mod builder;
mod kinds;
mod plan;
mod trace;
mod times;
mod cluster;
mod life;
mod gate;
mod client;
mod stale;
mod owners;
mod watch;
mod workers;
mod sameness;
mod identities;
mod versions;
mod derived;
mod pair;
mod canonical;
mod end_state;
mod flight;
mod run;
mod replays;
mod late;
mod pages;
mod milestones;
mod externals;
mod rollback;
mod seeded_hash;
mod in_order;
mod changes;
mod spec;
mod references;
mod shards;
mod search;
mod candidates;
mod shrink;
mod report;
mod timeline;
mod html;
mod progress;

pub use builder::{Explore, explore};
pub use externals::{External, ExternalError, Point, Unreachable};
pub use kinds::{Faults, clock_skew, crashes, delays, errors, pauses, stale_watches, variants};
pub use report::{Coverage, Failure, Report};
pub use spec::{explore_spec, explore_spec_of};

pub(crate) use client::GatedService;
pub(crate) use end_state::Mask;
pub(crate) use gate::Gate;
pub(crate) use seeded_hash::install as seed_hashes;

use std::fmt;
use std::sync::Arc;

use crate::eventually::quietly;
use crate::test_cluster::TestCluster;

/// The checks that [`explore`] makes of every run and that [`Explore::without`] can leave out. All are on. Some
/// failures always count and are not listed here: a panic, an assertion of the scenario, a scenario that never ends, a
/// loop that keeps the clock from moving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Oracle {
    /// The end state equals that of the run in which nothing goes wrong, but for what differs between two such runs.
    EndState,
    /// No object is created or deleted more often than where nothing goes wrong.
    CreatesAndDeletes,
    /// A restart when all is done changes nothing.
    Idempotence,
    /// A run has ten times the messages of the reference and 200 more at the most. Without it a controller may go on
    /// for ever; a scenario that waits for it to [`settle`](TestCluster::settle) still fails.
    HotLoop,
    /// No field outside of `metadata` and `status` takes a value again which it had left, unless it does where nothing
    /// goes wrong. Runs in which a client is shown an older state, or in which a request arrives late, are exempt.
    Rollback,
    /// A client that lists with a limit of more than one asks for the next page until there is none.
    Pages,
    /// Of what a controller makes for an owner, either all or nothing has an ownerReference: an object without, named
    /// after an object of its namespace that owns others of the same controller and has no finalizer, was forgotten.
    Owners,
    /// `status.observedGeneration` of the object of [`explore_spec`], if it is set, is the newest
    /// generation in the end. Other explorations do not check it.
    ObservedGeneration,
    /// No client deletes by name an object with another uid than the one it had seen.
    DeletesByName,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) oracle: &'static str,
    pub(crate) what: String,
}

impl Violation {
    pub(crate) fn new(oracle: &'static str, what: String) -> Self {
        Self { oracle, what }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.oracle, self.what)
    }
}

type Look = dyn Fn(&TestCluster) -> Result<(), String> + Send + Sync;

/// A condition of the user's.
#[derive(Clone)]
pub(crate) struct Check {
    pub(crate) name: String,
    /// It must hold after every write; else it must hold at least once in all runs.
    pub(crate) must_always: bool,
    look: Arc<Look>,
}

impl Check {
    /// Looks; a panic is a no.
    pub(crate) fn look(&self, cluster: &TestCluster) -> Result<(), String> {
        quietly(|| (self.look)(cluster))?
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
