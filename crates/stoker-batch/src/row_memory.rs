//! Memory for the values of rows, from a pool or new.

use std::ops::{Deref, DerefMut};

use arrow_buffer::{Buffer, MutableBuffer};

use crate::{BufferPool, Pooled, Result};

/// Memory for values, from a pool where there is one.
#[derive(Debug)]
pub struct RowMemory(Source);

#[derive(Debug)]
enum Source {
    New(MutableBuffer),
    Pooled(Pooled),
}

impl RowMemory {
    /// Takes memory with arbitrary content.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the operating system has no memory.
    pub fn of_bytes(length: usize, pool: Option<&BufferPool>) -> Result<Self> {
        match pool {
            Some(pool) if length > 0 => pool.take(length).map(Source::Pooled).map(Self),
            _ => Ok(Self(Source::New(MutableBuffer::from_len_zeroed(length)))),
        }
    }

    /// Converts the memory to an Arrow buffer. Memory of a pool returns to it when the last reference is dropped.
    pub fn freeze(self) -> Buffer {
        match self.0 {
            Source::New(memory) => memory.into(),
            Source::Pooled(memory) => memory.freeze(),
        }
    }
}

impl From<RowMemory> for Buffer {
    fn from(memory: RowMemory) -> Self {
        memory.freeze()
    }
}

impl Deref for RowMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Source::New(memory) => memory.as_slice(),
            Source::Pooled(memory) => memory.as_ref(),
        }
    }
}

impl DerefMut for RowMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Source::New(memory) => memory.as_slice_mut(),
            Source::Pooled(memory) => memory.as_mut(),
        }
    }
}
