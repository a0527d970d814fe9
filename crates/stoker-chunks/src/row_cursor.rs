//! A position among the rows of a read.

use crate::coalesce::Piece;

/// The next row of a read that is filled, or compared, from its first row to its last one. The default is the first row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowCursor {
    /// The index of the piece with the row.
    pub piece: usize,
    /// The index of the row in the piece.
    pub row: usize,
    /// The index of the row in the read.
    pub index: usize,
}

impl RowCursor {
    /// Moves past the rows that end at or before offset `end` of the read. Before it passes rows of a piece, it calls
    /// `visit` with their bytes and the size of one row.
    pub fn advance(&mut self, pieces: &[Piece], end: u64, mut visit: impl FnMut(RowCursor, &[u8], usize)) {
        while let Some(piece) = pieces.get(self.piece) {
            let row_bytes = piece.slot.row_bytes().max(1);
            let num_bytes = usize::try_from(end.saturating_sub(piece.at)).unwrap_or(usize::MAX);
            let num_rows = (num_bytes / row_bytes).min(piece.slot.num_rows());
            if num_rows > self.row {
                visit(*self, piece.slot.get(self.row * row_bytes..num_rows * row_bytes).unwrap_or_default(), row_bytes);
                self.index += num_rows - self.row;
                self.row = num_rows;
            }
            if num_rows < piece.slot.num_rows() {
                return;
            }
            *self = Self { piece: self.piece + 1, row: 0, index: self.index };
        }
    }
}
