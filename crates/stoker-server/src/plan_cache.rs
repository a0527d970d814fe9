//! A cache of stream plans.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use stoker_session::Result;
use stoker_stream::StreamPlan;
use stoker_types::Digest;
use tokio::sync::OnceCell;

/// The most recently used plans, at most `capacity`. Ranks that request the same stream concurrently load it once.
pub(crate) struct PlanCache {
    capacity: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    plans: HashMap<Digest, Entry>,
    uses: u64,
}

struct Entry {
    plan: Arc<OnceCell<StreamPlan>>,
    last_use: u64,
}

impl PlanCache {
    pub fn new(capacity: usize) -> Self {
        Self { capacity, inner: Mutex::default() }
    }

    /// Returns the plan of a stream; calls `load` if the cache does not have it. Errors are not cached.
    pub async fn get_or_load<F>(&self, id: Digest, load: impl FnOnce() -> F) -> Result<StreamPlan>
    where
        F: Future<Output = Result<StreamPlan>>,
    {
        let plan = self.entry(id);
        plan.get_or_try_init(load).await.cloned()
    }

    /// Caches a plan. It replaces a cached plan of the same stream whose specification was not in the lake.
    pub fn put(&self, plan: &StreamPlan) {
        let entry = self.entry(plan.stream_id());
        // A task that loads the same stream at this moment gets an equal plan.
        if entry.set(plan.clone()).is_err() && entry.get().is_some_and(|kept| !kept.spec_stored()) {
            let kept = Arc::new(OnceCell::new_with(Some(plan.clone())));
            if let Some(entry) = self.inner.lock().plans.get_mut(&plan.stream_id()) {
                entry.plan = kept;
            }
        }
    }

    fn entry(&self, id: Digest) -> Arc<OnceCell<StreamPlan>> {
        let mut inner = self.inner.lock();
        inner.uses += 1;
        let last_use = inner.uses;
        if !inner.plans.contains_key(&id) && inner.plans.len() >= self.capacity {
            let oldest = inner.plans.iter().min_by_key(|(_, entry)| entry.last_use).map(|(id, _)| *id);
            oldest.map(|id| inner.plans.remove(&id));
        }
        let entry = inner.plans.entry(id).or_insert_with(|| Entry { plan: Arc::default(), last_use });
        entry.last_use = last_use;
        entry.plan.clone()
    }
}
