//! Parses files of settings (TOML), some of which are secret.

use serde::de::DeserializeOwned;
use stoker_session::{Error, Result};

/// Parses the text of a file.
///
/// # Errors
/// A text that does not parse. The message tells the line and the name of the setting, but never its value, which may
/// be secret.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let line = |start: usize| text.bytes().take(start).filter(|byte| *byte == b'\n').count() + 1;
        let place = error.span().map_or(String::new(), |span| format!("line {}: ", line(span.start)));
        Error::invalid(format!("{place}{}", without_value(error.message())))
    })
}

/// Removes the value that was found from a message of serde: ``invalid type: string "x", expected usize`` becomes
/// ``invalid type: string, expected usize``.
fn without_value(message: &str) -> String {
    let is_about_value = ["invalid ", "unknown variant "].iter().any(|start| message.starts_with(start));
    let (begin, end) = (message.find(['"', '`']), message.rfind(", expected"));
    match (begin, end) {
        (Some(begin), Some(end)) if is_about_value && begin < end => {
            format!("{}{}", message[..begin].trim_end(), &message[end..])
        }
        _ => message.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::without_value;

    #[test]
    fn values_are_left_out_and_names_are_told() {
        for (message, told) in [
            ("invalid type: string \"a, expected \\\" b\", expected usize", "invalid type: string, expected usize"),
            ("invalid type: integer `12`, expected a string", "invalid type: integer, expected a string"),
            (
                "unknown variant `x`, expected one of `read`, `write`",
                "unknown variant, expected one of `read`, `write`",
            ),
            ("unknown field `colour`, expected `a`", "unknown field `colour`, expected `a`"),
            ("missing field `key`", "missing field `key`"),
        ] {
            assert_eq!(without_value(message), told);
        }
    }
}
