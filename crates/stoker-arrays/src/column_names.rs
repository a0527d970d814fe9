//! Names of columns that come from files.

use crate::{Error, Result};

/// The number of characters of a wrong name that a message shows.
const SHOWN_CHARS: usize = 80;

/// Checks that a name that a file gives can be that of a column. The ingest renames columns, for example those with dots.
///
/// # Errors
/// [`Error::Column`] for an empty name, and for one with a control character.
pub(crate) fn check_column_name(file: &str, name: &str) -> Result<()> {
    let fail = |reason: &str| {
        let column = name.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
        Err(Error::Column { file: file.into(), column, reason: reason.into() })
    };
    if name.is_empty() {
        return fail("the name is empty; give it one");
    }
    if name.chars().any(char::is_control) {
        return fail("the name has a control character; give it another one");
    }
    Ok(())
}
