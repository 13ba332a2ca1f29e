//! Limits the number of replicas that an autoscaler sets: by its bounds, its stabilization windows and its policies.

use std::cmp::Ordering;

use jiff::Timestamp;

use super::history::History;
use crate::api::json::Map;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;

/// Default stabilization window for scaling down, in seconds.
const DOWN_WINDOW: i64 = 300;

/// Status, reason and message of a condition.
type Condition = (bool, &'static str, &'static str);

const WITHIN: Condition = (
    false,
    "DesiredWithinRange",
    "the desired count is within the acceptable range",
);
const TOO_MANY: Condition = (
    true,
    "TooManyReplicas",
    "the desired replica count is more than the maximum replica count",
);
const TOO_FEW: Condition = (
    true,
    "TooFewReplicas",
    "the desired replica count is less than the minimum replica count",
);
const TOO_FAST_UP: Condition = (
    true,
    "ScaleUpLimit",
    "the desired replica count is increasing faster than the maximum scale rate",
);
const TOO_FAST_DOWN: Condition = (
    true,
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
);
const READY: Condition = (true, "ReadyForNewScale", "recommended size matches current size");
const DOWN_STABILIZED: Condition = (
    true,
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const UP_STABILIZED: Condition = (
    true,
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);

/// A number of replicas, with the resulting conditions.
pub(super) struct Limited {
    pub(super) desired: i64,
    pub(super) able: Condition,
    pub(super) limit: Condition,
}

impl Limited {
    /// Limits a recommendation, and adds it to the history.
    pub(super) fn of(
        autoscaler: &Object,
        history: &mut History,
        current: i64,
        recommended: i64,
        now: Timestamp,
    ) -> Self {
        history.recommend(now, recommended, current);
        let cursor = Cursor::root(autoscaler);
        let least = cursor.integer("spec.minReplicas").unwrap_or(1);
        let most = cursor.integer("spec.maxReplicas").unwrap_or(1);
        let rules = |which: &str| cursor.map(&format!("spec.behavior.{which}"));
        let window = |rules: Option<&Map>, default: i64| {
            let own = rules.and_then(|it| Cursor::root(it).integer("stabilizationWindowSeconds"));
            own.unwrap_or(default)
        };
        let (up, down) = (rules("scaleUp"), rules("scaleDown"));
        let lowest = history.recommended(now, window(up, 0)).fold(recommended, i64::min);
        let highest = history
            .recommended(now, window(down, DOWN_WINDOW))
            .fold(recommended, i64::max);
        let stable = match cursor.map("spec.behavior") {
            Some(_) => current.clamp(lowest, highest),
            None => highest,
        };
        let able = match stable.cmp(&recommended) {
            Ordering::Equal => READY,
            Ordering::Greater => DOWN_STABILIZED,
            Ordering::Less => UP_STABILIZED,
        };
        let (desired, limit) = if stable > current {
            let rate = match up {
                // The default limit is twice the current number, but at least four.
                None => (2 * current).max(4),
                Some(rules) => up_limit(rules, history, current, now).max(current),
            };
            match stable {
                it if it > most.min(rate) && most <= rate => (most, TOO_MANY),
                it if it > rate => (rate, TOO_FAST_UP),
                it => (it, WITHIN),
            }
        } else if stable < current {
            let rate = down.map_or(i64::MIN, |rules| down_limit(rules, history, current, now).min(current));
            match stable {
                it if it < least.max(rate) && least >= rate => (least, TOO_FEW),
                it if it < rate => (rate, TOO_FAST_DOWN),
                it => (it, WITHIN),
            }
        } else {
            (stable, WITHIN)
        };
        Self { desired, able, limit }
    }
}

/// Returns the highest number of replicas that the rules for scaling up allow.
fn up_limit(rules: &Map, history: &History, current: i64, now: Timestamp) -> i64 {
    let limits = policies(rules).map(|(kind, value, seconds)| {
        let start = current - history.change(now, seconds);
        match kind {
            "Pods" => start + value,
            _ => start + percent(start, value),
        }
    });
    select(rules, limits, current, true)
}

/// Returns the lowest number of replicas that the rules for scaling down allow.
fn down_limit(rules: &Map, history: &History, current: i64, now: Timestamp) -> i64 {
    let limits = policies(rules).map(|(kind, value, seconds)| {
        let start = current - history.change(now, seconds);
        match kind {
            "Pods" => start - value,
            _ => start * (100 - value) / 100,
        }
    });
    select(rules, limits, current, false)
}

/// Returns a percentage of a number, rounded up.
fn percent(number: i64, percent: i64) -> i64 {
    (number * percent + 99) / 100
}

/// Returns type, value and period of each policy.
fn policies(rules: &Map) -> impl Iterator<Item = (&str, i64, i64)> {
    Cursor::root(rules).maps("policies").map(|it| {
        let it = Cursor::root(it);
        let (value, seconds) = (it.integer("value"), it.integer("periodSeconds"));
        (it.text("type"), value.unwrap_or(0), seconds.unwrap_or(0))
    })
}

/// Returns the limit of the policy that allows the greatest or the smallest change, depending on `selectPolicy`.
fn select(rules: &Map, limits: impl Iterator<Item = i64>, current: i64, is_up: bool) -> i64 {
    let limit = match (Cursor::root(rules).text("selectPolicy"), is_up) {
        ("Disabled", _) => None,
        ("Min", true) | ("Max" | "", false) => limits.min(),
        _ => limits.max(),
    };
    limit.unwrap_or(current)
}
