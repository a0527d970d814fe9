//! Changes of a mixture's weights.
//!
//! A specification contains the first weights and the last few changes. Earlier changes are in the specification of an
//! earlier stream, which it names ([`stoker_types::MixtureSpec::earlier`]). A change therefore costs the same however
//! many changes preceded it. A reader of draws before the changes that a specification contains loads the
//! specifications of the earlier streams.

use std::sync::Arc;

use stoker_lake::LakeStore;
use stoker_order::StreamOrders;
use stoker_sql::Engine;
use stoker_types::{MixtureSegment, MixtureSpec, StreamSpec, slots_for};

use crate::plan::{PlanInner, load_spec, store_spec};
use crate::{Error, Result, StreamPlan};

/// Where a new specification keeps the changes of weights that preceded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightHistory {
    /// In the specification itself, up to 4,096 of them. This is for clients that do not know earlier specifications.
    Whole,
    /// The last changes in the specification itself, the others in the specifications of earlier streams.
    Linked,
}

impl StreamPlan {
    /// Returns the same mixture with other weights from a position of an epoch on. Everything before that position
    /// stays the same, and later changes of weights are dropped. If the lake has the specification of this stream, this
    /// writes one small object to the lake. Otherwise the new specification is not stored, and states must contain it.
    ///
    /// # Errors
    /// A stream that is not a mixture; weights that do not fit its queries; an epoch that the stream does not have;
    /// storage errors.
    pub async fn reweigh(
        &self,
        engine: &Engine,
        epoch: u64,
        position: u64,
        weights: &[f64],
        history: WeightHistory,
    ) -> Result<Self> {
        self.spec().check_epoch(epoch)?;
        let start = self.inner.orders.first_draw(epoch).saturating_add(position);
        let spec = self.spec_at(engine.lake(), start).await?;
        let orders = StreamOrders::new(&spec);
        let (Some(mixture), Some(drawing)) = (&spec.mixture, orders.mixture()) else {
            return Err(invalid("only a mixture has weights; this stream has one query".into()));
        };
        let slots = slots_for(weights)?;
        if slots.len() != spec.sources.len() {
            return Err(invalid(format!("{} weights for {} queries", slots.len(), spec.sources.len())));
        }
        let segment = MixtureSegment { start, drawn: drawing.drawn_before(start), slots };
        let mixture = mixture.changed(segment, (history == WeightHistory::Linked).then(|| spec.stream_id()));
        mixture.validate(spec.sources.len())?;
        let spec = StreamSpec { mixture: Some(mixture), ..spec };
        let spec_stored = self.spec_stored() && store_spec(engine, &spec).await?;
        let orders = StreamOrders::new(&spec);
        Ok(self.with(PlanInner { stream_id: spec.stream_id(), orders, spec, spec_stored, ..self.parts() }))
    }

    /// Returns this stream with orders that are defined from a position of an epoch on. If this stream's specification
    /// does not have the weights of that position, the specifications of earlier streams are loaded.
    ///
    /// # Errors
    /// [`Error::UnknownStream`] for an earlier stream that the lake does not have; storage errors.
    pub(crate) async fn reaching(&self, epoch: u64, position: u64) -> Result<Self> {
        let draw = self.inner.orders.first_draw(epoch).saturating_add(position);
        let Some(mixture) = self.spec().mixture.as_ref().filter(|mixture| !mixture.knows(draw)) else {
            return Ok(self.clone());
        };
        let lake = self.lake()?;
        let mut whole = mixture.clone();
        while let Some(earlier) = earlier(lake, &whole, draw).await? {
            let no_mixture = || Error::Internal { reason: "the earlier stream of a mixture is not a mixture".into() };
            whole = whole.preceded_by(earlier.mixture.as_ref().ok_or_else(no_mixture)?);
        }
        let spec = StreamSpec { mixture: Some(whole), ..self.spec().clone() };
        Ok(self.with(PlanInner { orders: StreamOrders::new(&spec), ..self.parts() }))
    }

    /// Returns the specification of this stream, or of the earlier stream that has the weights of a draw.
    async fn spec_at(&self, lake: &LakeStore, draw: u64) -> Result<StreamSpec> {
        let mut spec = self.spec().clone();
        // No weights precede draw 0, so the specifications of earlier streams are not needed for it.
        while let Some(mixture) = spec.mixture.as_ref().filter(|_| draw > 0)
            && let Some(earlier) = earlier(lake, mixture, draw).await?
        {
            spec = earlier;
        }
        Ok(spec)
    }

    fn lake(&self) -> Result<&LakeStore> {
        let none = || Error::Internal { reason: "a mixture without tables".into() };
        self.tables().next().map(|table| table.lake()).ok_or_else(none)
    }

    pub(crate) fn with(&self, inner: PlanInner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// Returns a copy of this plan's parts. Clones share the sources.
    pub(crate) fn parts(&self) -> PlanInner {
        let PlanInner { spec, stream_id, schema, orders, sources, spec_stored, row_bytes, depths, clips } =
            self.inner.as_ref();
        let (spec, schema, orders, sources) = (spec.clone(), schema.clone(), orders.clone(), sources.clone());
        PlanInner {
            spec,
            stream_id: *stream_id,
            schema,
            orders,
            sources,
            spec_stored: *spec_stored,
            row_bytes: *row_bytes,
            depths: depths.clone(),
            clips: clips.clone(),
        }
    }
}

/// Returns the specification of the earlier stream that has the weights of a draw, or `None` if this mixture has them
/// itself.
async fn earlier(lake: &LakeStore, mixture: &MixtureSpec, draw: u64) -> Result<Option<StreamSpec>> {
    match mixture.earlier.filter(|_| !mixture.knows(draw)) {
        Some(stream_id) => load_spec(lake, stream_id).await.map(Some),
        None => Ok(None),
    }
}

fn invalid(reason: String) -> Error {
    stoker_types::Error::InvalidValue { what: "weights", reason }.into()
}
