//! Makes the error messages of other libraries and of object stores readable for people.

use std::borrow::Cow;

/// The prefix with which errors of Lance name their variant, as in `LanceError(IO): `.
const VARIANT: &str = "LanceError(";

/// Returns the text without the parts that only programs understand: the variant names of Lance's errors, and XML and
/// HTML documents, of which only the code and the message are kept.
pub fn plain_message(text: &str) -> String {
    let mut plain = without_markup(text).into_owned();
    while let Some(start) = plain.find(VARIANT) {
        let rest = &plain[start + VARIANT.len()..];
        let Some(length) = rest.find(')') else { break };
        let end = start + VARIANT.len() + length + 1;
        let end = end + plain[end..].chars().take_while(|letter| matches!(letter, ':' | ' ')).count();
        plain.replace_range(start..end, "");
    }
    plain
}

/// Replaces an XML or HTML document in the text by the code and the message in it. The text before and after the
/// document is kept.
fn without_markup(text: &str) -> Cow<'_, str> {
    let begins = ["<?xml", "<Error", "<!DOCTYPE", "<html"];
    let Some(start) = begins.iter().filter_map(|begin| text.find(begin)).min() else { return text.into() };
    // A document without a closing tag was cut off; it extends to the end of the text.
    let end = text.rfind("</").and_then(|tag| Some(tag + text[tag..].find('>')? + 1)).filter(|end| *end > start);
    let end = end.unwrap_or(text.len());
    let (document, rest) = (&text[start..end], &text[end..]);
    let said = match (element(document, "Code"), element(document, "Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(said), None) | (None, Some(said)) => said,
        (None, None) => element(document, "title").unwrap_or_else(|| "a document without a code or a message".into()),
    };
    format!("{}{said}{rest}", &text[..start]).into()
}

/// Returns the text of the first element with this name, with its entities resolved, or `None` if there is none or it
/// is empty.
fn element(document: &str, name: &str) -> Option<String> {
    let (_, rest) = document.split_once(&format!("<{name}>"))?;
    let (inside, _) = rest.split_once(&format!("</{name}>"))?;
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&#39;", "'"), ("&amp;", "&")];
    let text = entities.iter().fold(inside.to_string(), |text, (entity, letter)| text.replace(entity, letter));
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::plain_message;

    #[test]
    fn bodies_of_stores_become_code_and_message() {
        let body = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>AccessDenied</Code><Message>no &quot;key&quot;\n \
                    here</Message><Key>a</Key></Error>";
        let said = format!("Server returned non-2xx status code: 403 Forbidden: {body}");
        let expected = "Server returned non-2xx status code: 403 Forbidden: AccessDenied: no \"key\" here";
        assert_eq!(plain_message(&said), expected);
        assert_eq!(plain_message(&format!("{said}, place:1:2")), format!("{expected}, place:1:2"));
        assert_eq!(plain_message("502: <html><head><title>Bad Gateway</title></head></html>"), "502: Bad Gateway");
        assert_eq!(plain_message("x <Error><Code>SlowDown</Code></Error>"), "x SlowDown");
        assert_eq!(plain_message("x <Error></Error>"), "x a document without a code or a message");
        assert_eq!(plain_message("a cut one: <Error><Code>Slow"), "a cut one: a document without a code or a message");
    }

    #[test]
    fn names_of_variants_are_left_out_and_other_text_stays() {
        assert_eq!(plain_message("LanceError(IO): Generic S3 error"), "Generic S3 error");
        assert_eq!(plain_message("Wrapped: LanceError(Arrow): LanceError(IO): é"), "Wrapped: é");
        for same in ["LanceError(", "a < b > c", "", "f(x): y"] {
            assert_eq!(plain_message(same), same);
        }
    }
}
