//! The permutation of the rows of a super-stride.

use crate::{Key, Permutation};

/// The permutation of the rows of one super-stride.
///
/// The slots 0..n are cut into *columns* of neighbouring slots, about one for each piece. Rows are delivered in
/// *rounds*, each of which takes one slot of each column. So two rows of one piece are delivered one round apart at
/// least, and any few consecutive rows are of different pieces.
///
/// Each round delivers the lower half of its columns first, so that two rows of one column, and two rows of one block in
/// successive super-strides, are about half a round apart at least.
#[derive(Clone, Debug)]
pub(crate) struct Rounds {
    key: Key,
    num_rows: u64,
    /// The slot at which the first column begins. Slots are counted cyclically from there.
    first_slot: u64,
    num_columns: u64,
    /// The number of columns that each round delivers first.
    num_lower: u64,
    /// The number of rounds that take a slot of each column.
    num_whole: u64,
    /// The number of columns with one slot more, which one more round takes.
    num_longer: u64,
}

/// The permutations of the columns of the round from which a slot was requested last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shuffle {
    round: Option<(u64, Columns)>,
}

/// The permutations of the columns in one round.
#[derive(Clone, Debug)]
struct Columns {
    lower: Permutation,
    upper: Permutation,
}

impl Columns {
    fn apply(&self, index: u64) -> u64 {
        match index.checked_sub(self.lower.len()) {
            None => self.lower.apply(index),
            Some(index) => self.lower.len() + self.upper.apply(index),
        }
    }

    fn invert(&self, column: u64) -> u64 {
        match column.checked_sub(self.lower.len()) {
            None => self.lower.invert(column),
            Some(column) => self.lower.len() + self.upper.invert(column),
        }
    }
}

impl Rounds {
    /// Makes the permutation of `num_rows` rows in about `columns` columns. The first column begins at `first_slot`,
    /// which is below the number of rows.
    pub fn new(num_rows: u64, columns: u64, first_slot: u64, key: Key) -> Self {
        let num_rounds = num_rows.div_ceil(columns.clamp(1, num_rows.max(1))).max(1);
        let num_columns = num_rows.div_ceil(num_rounds).max(1);
        let (num_whole, num_longer) = (num_rows / num_columns, num_rows % num_columns);
        Self { key, num_rows, first_slot, num_columns, num_lower: num_columns / 2, num_whole, num_longer }
    }

    /// Makes the uniform permutation of `num_rows` rows.
    pub fn uniform(num_rows: u64, key: Key) -> Self {
        let rounds = Self::new(num_rows, num_rows, 0, key);
        Self { num_lower: rounds.num_columns, ..rounds }
    }

    /// Returns the slot at an index.
    pub fn slot(&self, index: u64) -> u64 {
        Shuffle::default().slot(self, index)
    }

    /// Returns the index of a slot. It is the inverse of [`Rounds::slot`].
    pub fn index(&self, slot: u64) -> u64 {
        let slot = if slot < self.first_slot { slot + self.num_rows } else { slot } - self.first_slot;
        let in_longer = self.num_longer * (self.num_whole + 1);
        let (column, row) = match slot.checked_sub(in_longer) {
            None => (slot / (self.num_whole + 1), slot % (self.num_whole + 1)),
            Some(slot) => (self.num_longer + slot / self.num_whole, slot % self.num_whole),
        };
        let round = match row {
            row if row == self.num_whole => row,
            row if row % 2 == 1 => row / 2,
            row => self.num_whole / 2 + row / 2,
        };
        round * self.num_columns + self.columns(round).invert(column)
    }

    /// Returns the row of each column that a round takes: first all odd rows, then all even ones, and the row of the
    /// longer columns last.
    fn row(&self, round: u64) -> u64 {
        let num_odd = self.num_whole / 2;
        match round {
            round if round == self.num_whole => round,
            round if round < num_odd => 2 * round + 1,
            round => 2 * (round - num_odd),
        }
    }

    fn columns(&self, round: u64) -> Columns {
        let num_columns = if round < self.num_whole { self.num_columns } else { self.num_longer };
        let num_lower = num_columns.min(self.num_lower);
        let key = self.key.with(round);
        Columns {
            lower: Permutation::new(num_lower, key.with(0)),
            upper: Permutation::new(num_columns - num_lower, key.with(1)),
        }
    }
}

impl Shuffle {
    /// Returns the slot at an index of `rounds`, which must be the same for all calls.
    pub fn slot(&mut self, rounds: &Rounds, index: u64) -> u64 {
        let round = index / rounds.num_columns;
        let columns = match &self.round {
            Some((kept, columns)) if *kept == round => columns,
            _ => &self.round.insert((round, rounds.columns(round))).1,
        };
        let column = columns.apply(index % rounds.num_columns);
        let slot = column * rounds.num_whole + column.min(rounds.num_longer) + rounds.row(round);
        let before_end = rounds.num_rows - rounds.first_slot;
        if slot < before_end { rounds.first_slot + slot } else { slot - before_end }
    }
}
