//! The numbers that packs have for each of their tokens.

/// Writes the index of each token of a pack in its document, or in the piece of it that the pack has. `lengths` are those of
/// the documents. Padding has zero.
pub fn write_positions(lengths: impl IntoIterator<Item = usize>, tokens: &mut [i32]) {
    write_documents_with(lengths, tokens, |_, document| {
        document.iter_mut().zip(0..).for_each(|(token, position)| *token = position);
    });
}

/// Writes the number of the document of each token of a pack, which counts from 1 in each pack. `lengths` are those of the
/// documents. Padding has zero.
pub fn write_documents(lengths: impl IntoIterator<Item = usize>, tokens: &mut [i32]) {
    write_documents_with(lengths, tokens, |number, document| document.fill(number));
}

/// Writes the tokens of each document, which has a number from 1, and zeros after the last one.
fn write_documents_with(lengths: impl IntoIterator<Item = usize>, tokens: &mut [i32], write: impl Fn(i32, &mut [i32])) {
    let mut rest = tokens;
    for (number, length) in (1..).zip(lengths) {
        let (document, after) = rest.split_at_mut(length.min(rest.len()));
        write(number, document);
        rest = after;
    }
    rest.fill(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_positions_and_documents() {
        let mut tokens = [-1; 8];
        write_positions([3, 2, 1], &mut tokens);
        assert_eq!(tokens, [0, 1, 2, 0, 1, 0, 0, 0]);
        write_documents([3, 2, 1], &mut tokens);
        assert_eq!(tokens, [1, 1, 1, 2, 2, 3, 0, 0]);
        write_documents([3, 0, 9], &mut tokens);
        assert_eq!(tokens, [1, 1, 1, 3, 3, 3, 3, 3]);
        write_documents([], &mut tokens);
        assert_eq!(tokens, [0; 8]);
    }
}
