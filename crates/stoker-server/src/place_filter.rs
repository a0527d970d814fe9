//! Removes the location of the lake from messages for clients.
//!
//! Clients name tables, not files. The server's folders, buckets and endpoints would tell an attacker where to
//! continue, so only the server's log contains them.

use stoker_lake::LakeStore;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::Response;

/// Replaces what is removed.
const LEFT_OUT: &str = "…";
/// Replaces the lake's root.
const LAKE: &str = "the lake";
/// The minimum length of a root in bytes: shorter texts occur in messages by chance.
const ROOT_BYTES_MIN: usize = 3;

/// Removes the location of one lake from messages.
pub(crate) struct PlaceFilter {
    /// Texts that name the root. A text comes before those that it contains.
    roots: Vec<String>,
    bucket: Option<String>,
}

impl PlaceFilter {
    pub fn new(lake: &LakeStore) -> Self {
        let (uri, place) = (lake.uri(), lake.place());
        let path = uri.split_once("://").map_or(uri, |(_, path)| path);
        let bucket = uri.split_once("://").and_then(|(_, path)| path.split('/').next()).map(str::to_string);
        let mut roots: Vec<String> = Vec::new();
        for root in [place, uri, path, path.trim_start_matches('/')] {
            if root.len() >= ROOT_BYTES_MIN && root.contains('/') && !roots.iter().any(|known| known == root) {
                roots.push(root.to_string());
            }
        }
        Self { roots, bucket }
    }

    /// Returns the message with paths of files relative to the lake, without URLs and other absolute paths.
    pub fn filter(&self, message: &str) -> String {
        let text = self.roots.iter().fold(message.to_string(), |text, root| without_root(&text, root));
        let text = text.replace("the lake the lake", LAKE);
        let (mut filtered, mut before) = (String::with_capacity(text.len()), "");
        for word in text.split_inclusive(char::is_whitespace) {
            let is_bucket = ["bucket", "container"].iter().any(|name| before.to_lowercase().starts_with(name))
                && self.bucket.as_deref() == Some(word.trim_matches(|letter: char| !is_of_path(letter)));
            filtered.push_str(&if is_bucket { LEFT_OUT.into() } else { filter_word(word) });
            before = word;
        }
        filtered
    }

    /// Filters a status. If its message changes, the original message goes to the log.
    pub fn status(&self, status: Status) -> Status {
        let message = self.filter(status.message());
        if message == status.message() {
            return status;
        }
        tracing::info!(code = ?status.code(), error = status.message(), "a request failed");
        Status::with_metadata(status.code(), message, status.metadata().clone())
    }

    /// Filters the message of a response that is an error; returns other responses unchanged.
    pub fn response(&self, response: Response<Body>) -> Response<Body> {
        match Status::from_header_map(response.headers()) {
            Some(status) if status.code() != tonic::Code::Ok => self.status(status).into_http(),
            _ => response,
        }
    }
}

/// Returns the text with paths below `root` made relative to it.
fn without_root(text: &str, root: &str) -> String {
    let (mut kept, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.find(root) {
        let (before, after) = (&rest[..start], &rest[start + root.len()..]);
        // The root is part of a longer path or URL, which `filter_word` removes as a whole.
        let is_inside = before.ends_with(is_of_path);
        kept.push_str(before);
        match after.strip_prefix('/') {
            _ if is_inside => kept.push_str(root),
            Some(below) if below.starts_with(is_of_path) => {
                rest = below;
                continue;
            }
            _ if after.starts_with(|letter: char| letter.is_alphanumeric()) => kept.push_str(root),
            _ => kept.push_str(LAKE),
        }
        rest = after;
    }
    kept + rest
}

/// Removes URLs and absolute paths from a word, except the part of a path that is below the lake's root.
fn filter_word(word: &str) -> String {
    if let Some(scheme_end) = word.find("://") {
        let begin = word[..scheme_end].rfind(|letter: char| !letter.is_ascii_alphanumeric() && letter != '+');
        let begin = begin.map_or(0, |at| at + word[at..].chars().next().map_or(1, char::len_utf8));
        let place = &word[scheme_end + 3..];
        let end = place.find(|letter: char| letter.is_whitespace() || "\"'`<>(),;".contains(letter));
        let (place, behind) = place.split_at(end.unwrap_or(place.len()));
        let trailing = place.len() - place.trim_end_matches([':', '.']).len();
        let (place, points) = place.split_at(place.len() - trailing);
        return format!("{}{}{points}{}", &word[..begin], below_root(place).unwrap_or(LEFT_OUT), filter_word(behind));
    }
    let Some(begin) = word.find(is_of_path) else { return word.to_string() };
    let end = word[begin..].find(|letter| !is_of_path(letter)).map_or(word.len(), |length| begin + length);
    let path = &word[begin..end];
    let is_absolute = path.starts_with('/') && path.trim_end_matches('/').matches('/').count() > 1;
    let shown = match below_root(path) {
        Some(below) => below,
        None if is_absolute => LEFT_OUT,
        None => path,
    };
    format!("{}{shown}{}", &word[..begin], filter_word(&word[end..]))
}

/// Returns the part of a path that begins with a table's folder or with `_stoker`.
fn below_root(path: &str) -> Option<&str> {
    let starts = std::iter::once(0).chain(path.match_indices('/').map(|(at, _)| at + 1));
    let is_root = |at: &usize| {
        let part = path[*at..].split('/').next().unwrap_or_default();
        part.len() < path.len() && (part.ends_with(".lance") || part == "_stoker")
    };
    starts.into_iter().find(is_root).map(|at| &path[at..])
}

fn is_of_path(letter: char) -> bool {
    letter.is_alphanumeric() || "/._-~+%@=".contains(letter)
}

#[cfg(test)]
mod tests {
    use super::PlaceFilter;

    fn filter(roots: &[&str], bucket: Option<&str>) -> PlaceFilter {
        PlaceFilter { roots: roots.iter().map(ToString::to_string).collect(), bucket: bucket.map(Into::into) }
    }

    #[test]
    fn places_of_a_bucket_are_left_out() {
        let roots = ["s3://b-7/x at http://10.0.0.5:9000", "s3://b-7/x", "b-7/x"];
        let filter = filter(&roots, Some("b-7"));
        for (message, told) in [
            (
                "listing the tables of s3://b-7/x at http://10.0.0.5:9000: refused",
                "listing the tables of the lake: refused",
            ),
            ("GET http://10.0.0.5:9000/b-7/x/t.lance/data/1.lance in 4 ms", "GET t.lance/data/1.lance in 4 ms"),
            ("error sending request for url (https://b-7.s3.amazonaws.com/)", "error sending request for url (…)"),
            ("reading _stoker/specs/ab in s3://b-7/x", "reading _stoker/specs/ab in the lake"),
            ("Bucket 'b-7' not found", "Bucket … not found"),
            ("x/t.lance/_versions/1.manifest: gone", "t.lance/_versions/1.manifest: gone"),
        ] {
            assert_eq!(filter.filter(message).replace("…not", "… not"), told);
        }
    }

    #[test]
    fn places_of_a_folder_are_left_out() {
        let filter = filter(&["/srv/my lake", "srv/my lake"], None);
        for (message, told) in [
            ("table t in /srv/my lake does not exist; tables: a", "table t in the lake does not exist; tables: a"),
            ("cannot open \"/srv/my lake/t.lance/data/x\": gone", "cannot open \"t.lance/data/x\": gone"),
            ("srv/my lake/_stoker/specs/1", "_stoker/specs/1"),
            ("in /srv/my lakes", "in … lakes"),
            ("cannot read /etc/ssl/key.pem: no", "cannot read …: no"),
        ] {
            assert_eq!(filter.filter(message), told);
        }
    }

    #[test]
    fn what_names_no_place_stays() {
        let filter = filter(&["/srv/lake", "srv/lake"], None);
        for message in [
            "column a/b does not exist",
            "4 / 2, 1/3 and / alone: \"it\"",
            "use AT (VERSION => 3); see `a.b`\n  and the next line\t.",
            "",
        ] {
            assert_eq!(filter.filter(message), message);
        }
    }
}
