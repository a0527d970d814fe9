//! Values that belong to the process that made them.

/// A value with threads, sockets or locks behind it, which only its own process may use or drop.
///
/// After a `fork` the child sees `None`, and dropping the child's copy leaks it: its threads do not exist there, and its
/// locks may be held by them for ever.
#[derive(Debug)]
pub(crate) struct PerProcess<T> {
    pid: u32,
    value: Option<T>,
}

impl<T> PerProcess<T> {
    /// A value of this process.
    pub(crate) fn new(value: T) -> Self {
        Self { pid: std::process::id(), value: Some(value) }
    }

    /// The value, in the process that made it.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.pid == std::process::id())
    }

    /// The value to be changed, in the process that made it.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.value.as_mut().filter(|_| self.pid == std::process::id())
    }

    /// Takes the value out, in the process that made it.
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
