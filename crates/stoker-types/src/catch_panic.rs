//! Limits a decoder's panic to the file that caused it.

/// Runs a decoder and turns a panic into an error, as the panic concerns only one file.
///
/// # Errors
/// The errors of `work`, and the error that `error` makes of a panic's message.
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
