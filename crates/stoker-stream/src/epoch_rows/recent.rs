//! Values that were computed last, by key.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::Result;

/// The values that were computed last, up to a number of them. The oldest one leaves first.
pub(super) struct Recent<K, V> {
    num_max: usize,
    known: Mutex<Known<K, V>>,
}

struct Known<K, V> {
    values: HashMap<K, Arc<V>>,
    oldest: VecDeque<K>,
}

impl<K: Copy + Eq + Hash, V> Recent<K, V> {
    /// Keeps at most `num_max` values.
    pub fn new(num_max: usize) -> Self {
        Self { num_max, known: Mutex::new(Known { values: HashMap::new(), oldest: VecDeque::new() }) }
    }

    /// Returns the value of a key, which is computed if it is not known.
    pub fn get(&self, key: K, compute: impl FnOnce() -> Result<V>) -> Result<Arc<V>> {
        if let Some(value) = self.known.lock().values.get(&key) {
            return Ok(value.clone());
        }
        let value = Arc::new(compute()?);
        let mut known = self.known.lock();
        let Known { values, oldest } = &mut *known;
        if values.insert(key, value.clone()).is_none() {
            oldest.push_back(key);
        }
        while oldest.len() > self.num_max
            && let Some(key) = oldest.pop_front()
        {
            values.remove(&key);
        }
        Ok(value)
    }
}
