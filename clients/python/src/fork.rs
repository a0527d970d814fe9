//! Values that only the process that made them may use.

/// A value that owns threads, sockets or locks, and that only its own process may use or drop.
///
/// After a `fork`, the child sees `None`, and dropping the child's copy leaks the value: its threads do not exist in
/// the child, and they may have held its locks at the fork, which then stay locked for ever.
#[derive(Debug)]
pub(crate) struct PerProcess<T> {
    pid: u32,
    value: Option<T>,
}

impl<T> PerProcess<T> {
    /// Wraps a value of this process.
    pub(crate) fn new(value: T) -> Self {
        Self { pid: std::process::id(), value: Some(value) }
    }

    /// Returns the value in the process that made it, otherwise `None`.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.pid == std::process::id())
    }

    /// Returns the value in whatever process. In another process than the one that made the value, the caller may only
    /// read plain data: the value's threads and sockets are not there, and its locks may be held for ever.
    pub(crate) fn inherited(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// Takes the value out in the process that made it, otherwise returns `None`.
    pub(crate) fn take(&mut self) -> Option<T> {
        if self.pid == std::process::id() { self.value.take() } else { None }
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            std::mem::forget(self.value.take());
        }
    }
}
