//! Regular expressions in CEL expressions, compiled once and cached.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::meter::Meter;
use super::values::EvalFailure;
use crate::registry::types::pattern::Pattern;

/// Amount of work counted for compiling a regular expression, in addition to its cost.
const COMPILE_WORK: usize = 2_000;

/// Maximum number of cached regular expressions; the cache is cleared when it is full.
const PATTERNS_MAX: usize = 64;

thread_local! {
    static PATTERNS: RefCell<HashMap<String, Rc<Pattern>>> = RefCell::default();
}

/// Returns a compiled regular expression, from the cache if possible.
pub(super) fn pattern(text: &str, meter: &mut Meter) -> Result<Rc<Pattern>, EvalFailure> {
    let known = PATTERNS.with_borrow(|known| known.get(text).cloned());
    if let Some(pattern) = known {
        return Ok(pattern);
    }
    meter.work(COMPILE_WORK + text.len())?;
    let pattern = Rc::new(Pattern::new(text));
    PATTERNS.with_borrow_mut(|known| {
        if known.len() >= PATTERNS_MAX {
            known.clear();
        }
        known.insert(text.to_owned(), Rc::clone(&pattern));
    });
    Ok(pattern)
}
