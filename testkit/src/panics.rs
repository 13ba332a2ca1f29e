//! Handles panics on the thread of a test: panics that count as results of conditions, and the panic that fails the
//! test.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Set while a condition is evaluated. A panic then counts as the result of the condition, and is not printed.
    static EVALUATING: Cell<bool> = const { Cell::new(false) };
    /// Location of the last panic within a condition.
    static PANICKED_AT: RefCell<Option<String>> = const { RefCell::new(None) };
    /// The last panic that was printed.
    static LAST_PANIC: RefCell<Option<Panicked>> = const { RefCell::new(None) };
}

/// Guard that suppresses the printing of this thread's panics.
#[derive(Debug)]
pub(crate) struct Hushed(bool);

/// Suppresses the printing of this thread's panics, because they count as results.
pub(crate) fn hush() -> Hushed {
    // This call installs the hook.
    let _ = quietly(|| ());
    Hushed(EVALUATING.replace(true))
}

impl Drop for Hushed {
    fn drop(&mut self) {
        EVALUATING.set(self.0);
    }
}

/// Returns `true` while a panic counts as a result instead of a failure, for example while a condition is evaluated.
pub(crate) fn is_evaluating() -> bool {
    EVALUATING.get()
}

/// A panic of this thread that fails the test.
#[derive(Clone, Debug, Default)]
pub(crate) struct Panicked {
    /// Location of the panic: `tests/it.rs:12:5`.
    pub(crate) place: String,
    pub(crate) text: String,
}

/// Records the panics of this thread from now on, for [`last_panic`].
pub(crate) fn keep_panics() {
    // This call installs the hook.
    let _ = quietly(|| ());
}

/// Removes and returns the last printed panic of this thread.
pub(crate) fn last_panic() -> Option<Panicked> {
    LAST_PANIC.take()
}

/// Removes and returns the location of the last panic of this thread that was not printed.
pub(crate) fn panicked_at() -> Option<String> {
    PANICKED_AT.take()
}

/// Calls `condition`. A panic becomes an error with its message and location, and is not printed.
pub(crate) fn quietly<T>(condition: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let printing = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if EVALUATING.get() {
                let place = info.location().map(|it| format!("{}:{}", it.file(), it.line()));
                PANICKED_AT.with_borrow_mut(|at| *at = place);
            } else {
                let panicked = Panicked {
                    place: info.location().map(ToString::to_string).unwrap_or_default(),
                    text: message(info.payload()),
                };
                LAST_PANIC.with_borrow_mut(|it| *it = Some(panicked));
                printing(info);
            }
        }));
    });
    let before = EVALUATING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(condition));
    EVALUATING.set(before);
    result.map_err(|payload| with_place(PANICKED_AT.take(), &message(payload.as_ref())))
}

/// Prefixes a panic message with its location. Does not change a message that already begins with a location in the
/// same file, such as a failure of the testkit.
pub(crate) fn with_place(place: Option<String>, text: &str) -> String {
    let file = |place: &str| place.rsplit_once(':').map(|(file, _)| format!("{file}:"));
    match place {
        Some(place) if !file(&place).is_some_and(|it| text.starts_with(&it)) => format!("{place}: {text}"),
        Some(_) | None => text.to_owned(),
    }
}

/// Returns the message of a panic.
pub(crate) fn message(payload: &dyn Any) -> String {
    let text = payload.downcast_ref::<&str>().map(|it| (*it).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "(no message)".to_owned())
}
