//! Similar words.

/// Tells whether at most `limit` insertions, deletions and replacements of characters lead from one word to the other.
pub(crate) fn are_similar(one: &str, other: &str, limit: usize) -> bool {
    if one.chars().count().abs_diff(other.chars().count()) > limit {
        return false;
    }
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    // A row of the table of distances: between the first characters of `one`, and all beginnings of `other`.
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, character) in one.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        let mut least = row[0];
        for (column, theirs) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(character != theirs);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
            least = least.min(row[column + 1]);
        }
        if least > limit {
            return false;
        }
    }
    row[other.len()] <= limit
}

#[cfg(test)]
mod tests {
    use super::are_similar;

    #[test]
    fn edits_are_counted_in_characters() {
        for (one, other, distance) in [
            ("incident", "incidnt", 1),
            ("incident", "incident", 0),
            ("kitten", "sitting", 3),
            ("", "ab", 2),
            ("größe", "grösse", 2),
            ("ab", "ba", 2),
        ] {
            for limit in 0..5 {
                assert_eq!(are_similar(one, other, limit), limit >= distance, "{one} {other} {limit}");
                assert_eq!(are_similar(other, one, limit), limit >= distance, "{other} {one} {limit}");
            }
        }
    }
}
