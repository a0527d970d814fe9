//! Options that only some formats take.

use crate::{Error, FormatOptions, Result};

/// Checks that no columns of media are declared, in formats that have none or know them.
///
/// # Errors
/// [`Error::InvalidOption`].
pub fn refuse_media(options: &FormatOptions) -> Result<()> {
    let declared = [("--image", &options.images), ("--video", &options.videos), ("--audio", &options.audio)];
    match declared.into_iter().find(|(_, columns)| !columns.is_empty()) {
        None => Ok(()),
        Some((option, columns)) => Err(Error::InvalidOption {
            option: option.into(),
            reason: format!("column {} cannot be declared: this format says what its columns are", columns.join(", ")),
        }),
    }
}
