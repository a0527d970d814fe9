//! Names of columns that come from files.

use crate::{Error, Result};

/// Names of columns that Lance and searches add to those of a table. `stoker-lake` refuses them when it writes.
const RESERVED_NAMES: [&str; 8] = [
    "_rowid",
    "_rowaddr",
    "_rowoffset",
    "_row_created_at_version",
    "_row_last_updated_at_version",
    "_distance",
    "_score",
    "_rank",
];

/// The number of characters of a wrong name that a message shows.
const SHOWN_CHARS: usize = 80;

/// Checks that a table can have a column with a name that a file gives.
///
/// # Errors
/// [`Error::Column`] for an empty name, a reserved one, and one with a dot or a control character.
pub(crate) fn check_column_name(file: &str, name: &str) -> Result<()> {
    let fail = |reason: &str| {
        let column = name.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
        Err(Error::Column { file: file.into(), column, reason: reason.into() })
    };
    if name.is_empty() {
        return fail("the name is empty; give it one");
    }
    if RESERVED_NAMES.contains(&name) {
        return fail("the name is reserved for what scans and searches add to rows; give it another one");
    }
    if name.contains('.') {
        return fail(
            "names of columns cannot have dots, which stand for members of structs; rename it, for example with _",
        );
    }
    if name.chars().any(char::is_control) {
        return fail("the name has a control character; give it another one");
    }
    Ok(())
}
