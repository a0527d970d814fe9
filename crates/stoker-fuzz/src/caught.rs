//! Calls that may panic.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// Whether a target runs on this thread.
    static RUNS: Cell<bool> = const { Cell::new(false) };
    /// The last panic of the target: where it happened, and its message.
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Calls a function. The error is the message of its panic, with the file and the line.
///
/// While the function runs, panics on this thread print nothing, because a target may catch panics of a library, which
/// would fill the output.
pub(crate) fn call<T>(function: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| match RUNS.get() {
            true => LAST.with_borrow_mut(|last| *last = info.to_string()),
            false => before(info),
        }));
    });
    RUNS.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(function));
    RUNS.set(false);
    result.map_err(|_| LAST.take())
}
