//! Writes and reads the small part of XML that the S3 protocol needs.

/// Replaces the characters that have a meaning in XML.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Returns the texts of all elements of a name; the elements must have no attributes.
pub fn texts(xml: &str, name: &str) -> Vec<String> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let inside = xml.split(open.as_str()).skip(1).filter_map(|rest| rest.split_once(close.as_str()));
    inside.map(|(text, _)| unescape(text)).collect()
}

fn unescape(text: &str) -> String {
    let named = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    named.iter().fold(text.to_string(), |text, (entity, letter)| text.replace(entity, letter))
}
