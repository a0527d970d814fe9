//! Keeps the panics of decoders to the file that caused them.

/// Runs a decoder; a panic of it becomes an error, since it says something about one source only.
///
/// # Errors
/// Those of `work`, and what `error` makes of a panic's message.
pub fn catch_panic<T, E>(work: impl FnOnce() -> Result<T, E>, error: impl FnOnce(String) -> E) -> Result<T, E> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
            Err(error(format!("its decoder failed: {text}")))
        }
    }
}
