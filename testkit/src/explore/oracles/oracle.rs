//! `Oracle`: the list of oracles. Each oracle is described by an [`OracleRow`] in a separate file.

use std::collections::BTreeSet;

use super::facts::Facts;
use super::row::{Looks, OracleRow, Recurring, Restarted};
use super::{
    creates_and_deletes, deletes_by_name, end_state, generated_values, hot_loop, idempotence, observed_generation,
    owners, pages, rollback,
};
use crate::explore::outcomes::{EndState, Violation};

/// Generates the enum, the list of its variants and the lookup of rows.
macro_rules! oracles {
    ($(#[$about:meta])* pub enum Oracle { $($(#[$doc:meta])+ $name:ident => $row:expr,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Oracle { $($(#[$doc])+ $name,)+ }

        impl Oracle {
            /// All oracles, in the order of their evaluation.
            const ALL: &'static [Oracle] = &[$(Oracle::$name),+];

            const fn row(self) -> &'static OracleRow {
                match self {
                    $(Oracle::$name => { const ROW: &OracleRow = &$row; ROW })+
                }
            }
        }
    };
}

oracles! {
/// The checks that [`explore`](fn@crate::explore::explore) applies to its runs, and that
/// [`Explore::without`](crate::explore::Explore::without) can disable. All are enabled by default. Some failures always
/// count and are not listed here: a panic, a failed assertion of the scenario, a scenario that never ends, and a loop
/// that stops the clock.
pub enum Oracle {
    /// The end state equals the end state of the run without faults, except for fields that differ between two such
    /// runs. The states at which the scenario settles are compared as well.
    EndState => end_state::ROW,
    /// If the status of the object of [`explore_spec`](crate::explore::explore_spec), or one of its conditions, has an
    /// `observedGeneration`, it is the newest generation at the end, unless it is older in the run without faults as
    /// well. Other explorations do not check it.
    ObservedGeneration => observed_generation::ROW,
    /// The copies of a value that a controller generated are equal at the end. A value counts as generated if it
    /// differs between runs without faults, each of which draws different random numbers: a password, a cookie, a port.
    /// Fails if a controller generates a value again while another object, or an external system, still contains the
    /// old value.
    GeneratedValues => generated_values::ROW,
    /// A client that lists with a limit greater than one reads all pages. Only runs without faults, and runs in which
    /// smaller pages are the only fault, are checked.
    Pages => pages::ROW,
    /// A restart of a controller after all work has been done changes nothing, except for heartbeats and for objects
    /// with a time in their names.
    Idempotence => idempotence::ROW,
    /// Either all objects that a controller creates for an owner have an ownerReference, or none of them has one. An
    /// object belongs to the owner if its name begins with the owner's name and both are in the same namespace. Owners
    /// with a finalizer are exempt, and so are volumes, their claims and their snapshots. Only the run without faults
    /// is checked.
    Owners => owners::ROW,
    /// Fields outside of `metadata` and `status` do not return to an earlier value, unless they also do so in the run
    /// without faults. Objects that only the server's workers wrote are exempt, and so are runs with a fault that
    /// delays a single request or event, suspends a process, or lets a client read an older state. A field that was
    /// absent in between is exempt, because entries of lists and maps may be removed and added again.
    Rollback => rollback::ROW,
    /// Objects are not created or deleted more often than in the run without faults. Runs that only change the spec are
    /// exempt.
    CreatesAndDeletes => creates_and_deletes::ROW,
    /// A run has at most 200 messages plus ten times the messages of the reference. The limit is higher if the server's
    /// workers send requests, or if the run waits for the correct state. Without this oracle a controller may continue
    /// indefinitely; a scenario that waits for it to [`settle`](crate::TestCluster::settle) still fails.
    HotLoop => hot_loop::ROW,
    /// Clients do not delete an object by name if its uid differs from the uid that the client last observed.
    DeletesByName => deletes_by_name::ROW,
}
}

impl Oracle {
    /// Returns the name of the oracle in reports.
    pub(crate) const fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the function that checks whether a run without faults has the violations of a failing run, for the
    /// oracle with this name; `None` if the oracle does not compare runs with the reference.
    pub(crate) fn recurs(name: &str) -> Option<fn(&Recurring<'_>) -> bool> {
        let oracle = Self::ALL.iter().find(|it| it.name() == name)?;
        oracle.row().recurs
    }
}

#[cfg(all(feature = "processes", unix))]
impl Oracle {
    /// Returns the names of all oracles, as used in reports.
    pub(crate) fn names() -> Vec<&'static str> {
        Self::ALL.iter().map(|it| it.name()).collect()
    }

    /// Returns the oracle with this name.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|it| it.name() == name)
    }
}

/// The oracles of an exploration, without the oracles that the test has disabled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oracles {
    left_out: BTreeSet<Oracle>,
}

impl Oracles {
    pub(crate) fn leave_out(&mut self, oracle: Oracle) {
        self.left_out.insert(oracle);
    }

    pub(crate) fn has(&self, oracle: Oracle) -> bool {
        !self.left_out.contains(&oracle)
    }

    fn rows(&self) -> impl Iterator<Item = &'static OracleRow> {
        let all = Oracle::ALL.iter().filter(|it| self.has(**it));
        all.map(|it| it.row())
    }

    /// Checks the run at the end of the scenario.
    pub(crate) fn after_scenario(&self, facts: &Facts<'_>) -> Vec<Violation> {
        let found = self.rows().filter_map(|row| match row.looks {
            Looks::AfterScenario(check) => Some(Violation::new(row.name, check(facts)?)),
            Looks::AtMessages | Looks::UntilRight(_) | Looks::AfterRestart(_) | Looks::AtTheEnd(_) => None,
        });
        found.collect()
    }

    /// Checks an end state that may still change. Returns the first violation.
    pub(crate) fn not_right(&self, facts: &Facts<'_>, end: &EndState) -> Option<Violation> {
        self.rows().find_map(|row| match row.looks {
            Looks::UntilRight(check) => check(facts, end),
            Looks::AtMessages | Looks::AfterScenario(_) | Looks::AfterRestart(_) | Looks::AtTheEnd(_) => None,
        })
    }

    /// Checks the run after the restart of a controller.
    pub(crate) fn after_restart(&self, facts: &Facts<'_>, restarted: &Restarted<'_>) -> Vec<Violation> {
        let found = self.rows().filter_map(|row| match row.looks {
            Looks::AfterRestart(check) => Some(Violation::new(row.name, check(facts, restarted)?)),
            Looks::AtMessages | Looks::AfterScenario(_) | Looks::UntilRight(_) | Looks::AtTheEnd(_) => None,
        });
        found.collect()
    }

    /// Checks the run at its end.
    pub(crate) fn at_the_end(&self, facts: &Facts<'_>) -> Vec<Violation> {
        let found = self.rows().filter_map(|row| match row.looks {
            Looks::AtTheEnd(check) => Some(Violation::new(row.name, check(facts)?)),
            Looks::AtMessages | Looks::AfterScenario(_) | Looks::UntilRight(_) | Looks::AfterRestart(_) => None,
        });
        found.collect()
    }
}
