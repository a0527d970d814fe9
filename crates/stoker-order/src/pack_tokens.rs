//! The numbers that packs have for each of their tokens.

use crate::DocumentPiece;

/// Writes the index of each token of a pack in its document, or in the piece of it that the pack has. Padding has zero.
pub fn write_positions(pack: &[DocumentPiece], tokens: &mut [i32]) {
    write_pieces(pack, tokens, |_, piece| {
        piece.iter_mut().zip(0..).for_each(|(token, position)| *token = position);
    });
}

/// Writes the number of the document of each token of a pack, which counts from 1 in each pack. Padding has zero.
pub fn write_documents(pack: &[DocumentPiece], tokens: &mut [i32]) {
    write_pieces(pack, tokens, |number, piece| piece.fill(number));
}

/// Writes the tokens of each document, which has a number from 1, and zeros after the last one.
fn write_pieces(pack: &[DocumentPiece], tokens: &mut [i32], write: impl Fn(i32, &mut [i32])) {
    let mut rest = tokens;
    for (number, piece) in (1..).zip(pack) {
        let length = usize::try_from(piece.length).unwrap_or(usize::MAX).min(rest.len());
        let (of_piece, after) = rest.split_at_mut(length);
        write(number, of_piece);
        rest = after;
    }
    rest.fill(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_positions_and_documents() {
        let piece = |document, start, length| DocumentPiece { document, start, length, is_whole: start == 0 };
        let pack = [piece(7, 0, 3), piece(2, 9, 2), piece(8, 0, 1)];
        let mut tokens = [-1; 8];
        write_positions(&pack, &mut tokens);
        assert_eq!(tokens, [0, 1, 2, 0, 1, 0, 0, 0]);
        write_documents(&pack, &mut tokens);
        assert_eq!(tokens, [1, 1, 1, 2, 2, 3, 0, 0]);
        write_documents(&[], &mut tokens);
        assert_eq!(tokens, [0; 8]);
    }
}
