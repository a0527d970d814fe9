//! The order of one epoch of a stream, over all its sources.

use std::ops::Range;
use std::sync::Arc;

use stoker_types::{Mixing, OrderOptions, ShuffleMode, SourceSpec, StreamSpec};

use crate::delay_line::WINDOW_ROWS_MIN;
use crate::{DelayLine, EpochOrder, Key, Mixture};

/// The label that derives the keys of sources.
const SOURCE: u64 = 5;

/// The row that a position delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The source's index in the stream.
    pub source: usize,
    /// The source's own epoch.
    pub epoch: u64,
    /// The position in that epoch of the source, not of the stream.
    pub position: u64,
    /// The ordinal of the row in the source's row set or, if its rows have weights, the weighted ordinal.
    pub ordinal: u64,
}

/// The orders of all epochs of a stream. Clones share their data.
#[derive(Clone, Debug)]
pub struct StreamOrders {
    num_rows: u64,
    seed: u64,
    sources: Arc<[Source]>,
    mixture: Option<Arc<Mixture>>,
}

/// The order of one epoch of a stream. It takes little time to construct and to clone.
#[derive(Clone, Debug)]
pub struct StreamOrder {
    number: u64,
    sources: Arc<[Source]>,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    One { order: EpochOrder, epoch: u64 },
    Mixed { mixture: Arc<Mixture>, first_draw: u64 },
}

/// Everything that determines the orders of one source.
#[derive(Debug)]
struct Source {
    num_rows: u64,
    order: OrderOptions,
    seed: u64,
}

/// Returns the seed of the orders of a source of a stream with `seed`.
pub fn source_seed(seed: u64, is_mixture: bool, source: usize) -> u64 {
    match is_mixture {
        false => seed,
        true => Key::new(seed).with(SOURCE).with(source as u64).bits(),
    }
}

impl StreamOrders {
    /// Makes the orders of a valid specification.
    pub fn new(spec: &StreamSpec) -> Self {
        let source = |(index, source): (usize, &SourceSpec)| Source {
            num_rows: source.num_rows,
            order: source.order.clone(),
            seed: source_seed(spec.seed, spec.mixture.is_some(), index),
        };
        Self {
            num_rows: spec.num_rows,
            seed: spec.seed,
            sources: spec.sources.iter().enumerate().map(source).collect(),
            mixture: spec.mixture.as_ref().map(|mixture| Arc::new(Mixture::new(mixture, spec.seed))),
        }
    }

    /// Returns how the sources are interleaved, or `None` for a stream of one query.
    pub fn mixture(&self) -> Option<&Mixture> {
        self.mixture.as_deref()
    }

    /// Returns the first draw of an epoch of a mixture.
    pub fn first_draw(&self, epoch: u64) -> u64 {
        epoch.saturating_mul(self.num_rows)
    }

    /// Returns the order of an epoch.
    pub fn epoch(&self, epoch: u64) -> StreamOrder {
        let kind = match &self.mixture {
            Some(mixture) => Kind::Mixed { mixture: mixture.clone(), first_draw: self.first_draw(epoch) },
            None => {
                let Source { num_rows, order, .. } = &self.sources[0];
                Kind::One { order: EpochOrder::new(*num_rows, order, self.seed, epoch), epoch }
            }
        };
        StreamOrder { number: epoch, sources: self.sources.clone(), kind }
    }
}

impl StreamOrder {
    /// Returns the number of the epoch.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Appends the visits of `positions` to `out`, in the same order. Ascending positions are fastest.
    pub fn visits(&self, positions: impl Iterator<Item = u64>, out: &mut Vec<Visit>) {
        match &self.kind {
            Kind::One { order, epoch } => {
                let positions: Vec<u64> = positions.collect();
                let mut ordinals = Vec::with_capacity(positions.len());
                order.ordinals(positions.iter().copied(), &mut ordinals);
                let visit = |(position, ordinal)| Visit { source: 0, epoch: *epoch, position, ordinal };
                out.extend(positions.into_iter().zip(ordinals).map(visit));
            }
            Kind::Mixed { mixture, first_draw } => {
                let first = out.len();
                let draws = positions.map(|position| mixture.draw(first_draw.saturating_add(position)));
                out.extend(draws.map(|draw| {
                    let rows = self.sources[draw.source].num_rows;
                    let (epoch, position) = (draw.index / rows, draw.index % rows);
                    Visit { source: draw.source, epoch, position, ordinal: 0 }
                }));
                for (index, source) in self.sources.iter().enumerate() {
                    let mine: Vec<&mut Visit> = out[first..].iter_mut().filter(|visit| visit.source == index).collect();
                    source.fill(mine);
                }
            }
        }
    }

    /// Returns the visit of one position.
    pub fn visit(&self, position: u64) -> Visit {
        let mut out = Vec::with_capacity(1);
        self.visits(std::iter::once(position), &mut out);
        out[0]
    }

    /// Returns the positions that are best read together with `position`. Where rows are shuffled inside windows, they
    /// are the positions that share its window; for a delay line, those of its super-stride, of all lanes. For a
    /// mixture, they are as many positions as the windows of all sources have rows together, because these windows are
    /// used up at about the same time.
    ///
    /// Returns `None` if rows of a source are not shuffled in blocks.
    pub fn window_positions(&self, position: u64) -> Option<Range<u64>> {
        match &self.kind {
            Kind::One { order, .. } => order.window_positions(position),
            Kind::Mixed { .. } if self.sources.iter().any(|source| source.order.mode != ShuffleMode::Block) => None,
            Kind::Mixed { .. } => {
                let rows = self.sources.iter().map(Source::window_rows).fold(0u64, u64::saturating_add);
                let start = position / rows * rows;
                Some(start..start.saturating_add(rows))
            }
        }
    }

    /// Returns the order of the only source, if it is a delay line.
    pub fn delay_line(&self) -> Option<(&EpochOrder, &DelayLine)> {
        match &self.kind {
            Kind::One { order, .. } => Some((order, order.delay_line()?)),
            Kind::Mixed { .. } => None,
        }
    }

    /// Returns the positions, in the visit's epoch of its source, of the window that contains the visit. It is the
    /// window of all lanes together. Rows of a window may replace each other.
    pub fn window_of(&self, visit: &Visit) -> Range<u64> {
        let source = &self.sources[visit.source];
        let windows = |order: &EpochOrder| order.delay_line().map(|line| line.window(visit.position));
        let window = match (&self.kind, source.order.mixing) {
            (_, Mixing::Windows { .. }) => None,
            (Kind::One { order, .. }, Mixing::DelayLine { .. }) => windows(order),
            (Kind::Mixed { .. }, Mixing::DelayLine { .. }) => windows(&source.epoch(visit.epoch)),
        };
        window.unwrap_or_else(|| {
            let rows = source.window_rows();
            let start = visit.position / rows * rows;
            start..start.saturating_add(rows).min(source.num_rows)
        })
    }

    /// Returns the visit of another position in the same epoch of the same source.
    pub fn visit_beside(&self, visit: &Visit, position: u64) -> Visit {
        let ordinal = match &self.kind {
            Kind::One { order, .. } => order.ordinal(position),
            Kind::Mixed { .. } => self.sources[visit.source].epoch(visit.epoch).ordinal(position),
        };
        Visit { position, ordinal, ..*visit }
    }
}

impl Source {
    /// Returns the number of rows in the windows of all lanes together. For a delay line, it is about the number of rows
    /// that the lanes deliver while they deliver a block.
    fn window_rows(&self) -> u64 {
        let of_lanes = |lane_rows: u64| lane_rows.saturating_mul(u64::from(self.order.num_lanes));
        match self.order.mixing {
            Mixing::Windows { rows_per_window } => of_lanes(rows_per_window).max(1),
            Mixing::DelayLine { super_strides_per_block } => {
                of_lanes(self.order.rows_per_block.saturating_mul(super_strides_per_block)).max(WINDOW_ROWS_MIN)
            }
        }
    }

    fn epoch(&self, epoch: u64) -> EpochOrder {
        EpochOrder::new(self.num_rows, &self.order, self.seed, epoch)
    }

    /// Sets the ordinals of visits of this source.
    fn fill(&self, visits: Vec<&mut Visit>) {
        let mut ordinals = Vec::with_capacity(visits.len());
        for run in visits.chunk_by(|one, next| one.epoch == next.epoch) {
            let order = self.epoch(run[0].epoch);
            order.ordinals(run.iter().map(|visit| visit.position), &mut ordinals);
        }
        for (visit, ordinal) in visits.into_iter().zip(ordinals) {
            visit.ordinal = ordinal;
        }
    }
}
