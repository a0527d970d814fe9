//! Delivers the parts in order, when the units that complete them are read.

use stoker_types::{BadRows, to_usize};

use crate::part_builder::Delivered;
use crate::planner::Planner;
use crate::planner::reading::ReadUnit;
use crate::substitute::substitutes;
use crate::{Error, Result};

impl Planner {
    /// Waits for all units that are being read, and delivers the parts that they complete.
    pub(super) async fn deliver_all(&mut self) -> Result<()> {
        while !self.reading.is_empty() {
            self.deliver_oldest().await?;
        }
        Ok(())
    }

    /// Waits for the oldest unit and delivers the parts that it completes.
    pub(super) async fn deliver_oldest(&mut self) -> Result<()> {
        let Some(mut reading) = self.reading.pop_front() else { return Ok(()) };
        let was_read = reading.task.0.is_finished();
        let ReadUnit { pieces, mut spans, waited } = reading.task.done().await?;
        let waited = waited.unwrap_or(!was_read);
        // The consumer waits if it has taken all parts.
        let is_consumer_waiting = self.output.capacity() == self.output.max_capacity();
        let num_bytes = (reading.positions.len() as u64).saturating_mul(self.plan.row_bytes());
        self.learn(num_bytes, waited && is_consumer_waiting);
        let Some(first) = self.builders.front().map(|builder| builder.part.number) else { return Ok(()) };
        let clock = self.scan.clock();
        let begun = clock.now();
        for mut piece in pieces {
            let builder = &mut self.builders[to_usize(piece.part - first)];
            if !piece.bad.is_empty() {
                piece = match self.options.bad_rows {
                    BadRows::Error => return Err(self.plan.bad_row(&piece)),
                    BadRows::Substitute => {
                        let positions = &reading.positions[piece.range.clone()];
                        substitutes(&self.plan, &self.order, &self.scan, positions, piece, builder, &self.met).await?
                    }
                };
            }
            builder.add(piece);
        }
        spans.decode += clock.since(begun);
        let schema = self.plan.schema();
        while let Some(builder) = self.builders.pop_front_if(|builder| builder.part.number < reading.complete_below) {
            let number = builder.part.number;
            let held = self.held.pop_front_if(|(part, _)| *part == number).map(|(_, held)| held);
            let begun = clock.now();
            let (part, bytes) = builder.finish(&self.plan.inner, &self.slice, &schema)?;
            spans.decode += clock.since(begun);
            self.output.send(Ok(Delivered { part, bytes, spans, _held: held })).await.map_err(|_| gone())?;
        }
        Ok(())
    }
}

/// Returns the error for a consumer that dropped its end of the stream.
fn gone() -> Error {
    Error::Internal { reason: "the consumer of the batches closed the stream".into() }
}
