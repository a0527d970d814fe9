//! Divides files into pieces, each of which is decoded on its own.

use super::source::ParquetFile;

/// A row group. A file without row groups is one piece without a row group.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub file: usize,
    pub row_group: Option<usize>,
    /// The index in the file of the piece's first row.
    pub first_row: u64,
    pub rows: u64,
    /// The size in the file in bytes. The last piece of a file also counts the footer.
    pub bytes: u64,
    pub last_of_file: bool,
}

/// Returns the pieces of a file, which has the index `index`.
pub(super) fn file_pieces(index: usize, file: &ParquetFile) -> Vec<Piece> {
    let groups = &file.row_groups;
    let mut pieces = Vec::with_capacity(groups.len().max(1));
    let (mut first_row, mut rest) = (0, file.stamp.bytes);
    for (row_group, group) in groups.iter().enumerate() {
        let rows = group.rows;
        let bytes = group.bytes.min(rest);
        let row_group = Some(row_group);
        pieces.push(Piece { file: index, row_group, first_row, rows, bytes, last_of_file: false });
        first_row += rows;
        rest -= bytes;
    }
    match pieces.last_mut() {
        Some(last) => {
            last.bytes += rest;
            last.last_of_file = true;
        }
        None => {
            pieces.push(Piece { file: index, row_group: None, first_row: 0, rows: 0, bytes: rest, last_of_file: true })
        }
    }
    pieces
}
