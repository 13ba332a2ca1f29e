//! Selects the faults that take effect at a message, by the point of the message.

use std::fmt::Write as _;

use tokio::time::Instant;

use super::decide::{Gate, State};
use crate::explore::plans::{Action, first_in_step};

impl Gate {
    /// Counts a message, and returns its point and the faults at this point.
    pub(crate) fn actions(&self, state: &mut State, stem: String) -> (String, Vec<Action>) {
        let count = match state.counts.get_mut(&stem) {
            Some(count) => {
                *count += 1;
                *count
            }
            None => {
                state.counts.insert(stem.clone(), 1);
                1
            }
        };
        let is_first = state.step > 1 && state.in_step.insert(stem.clone());
        let of_step = is_first.then(|| first_in_step(&stem, state.step));
        let mut point = stem;
        // Writing to a String does not fail.
        let _ = write!(point, "#{count}");
        let strikes = |point: &str| self.plan.faults.iter().any(|it| it.point == point);
        if let Some(of_step) = of_step.filter(|it| strikes(it)) {
            point = of_step;
        }
        let struck = self.plan.faults.iter().filter(|it| it.point == point);
        let actions: Vec<Action> = struck.map(|it| it.action).collect();
        if !actions.is_empty() {
            // A fault without a duration ends immediately.
            state.windows_end = state.windows_end.max(Some(Instant::now()));
            state.faults_begin.get_or_insert(self.started.elapsed());
        }
        (point, actions)
    }
}
