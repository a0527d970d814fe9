//! The request `ListObjectsV2`.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Result};
use std::ops::Bound;
use std::path::Path;
use std::time::SystemTime;

use crate::object_server::Store;
use crate::object_server::dates::listing_date;
use crate::object_server::http::{Request, Response};
use crate::object_server::objects::etag;
use crate::object_server::xml::escape;

/// The maximum number of entries of a page, which is S3's limit.
const ENTRIES_MAX: usize = 1_000;

/// An entry of a listing.
enum Entry {
    Object {
        size: u64,
        modified: SystemTime,
    },
    /// A common prefix: the key up to and including the next delimiter.
    Prefix,
}

impl Store {
    /// Returns a page of a bucket's objects, in the order of their keys.
    pub(super) fn list(&self, bucket: &str, request: &Request) -> Result<Response> {
        let root = self.dir.join(bucket);
        if !root.is_dir() {
            return Ok(Response::error(404, "NoSuchBucket", "there is no such bucket"));
        }
        let prefix = request.query("prefix").unwrap_or("");
        let by_folder = request.query("delimiter").is_some_and(|delimiter| !delimiter.is_empty());
        let mut entries = BTreeMap::new();
        collect(&root, "", prefix, by_folder, &mut entries)?;
        let after = request.query("continuation-token").or(request.query("start-after")).unwrap_or("").to_string();
        let after: (Bound<String>, Bound<String>) = (Bound::Excluded(after), Bound::Unbounded);
        let asked = request.query("max-keys").and_then(|number| number.parse().ok()).unwrap_or(ENTRIES_MAX);
        let mut rest = entries.range(after).peekable();
        let page: Vec<_> = rest.by_ref().take(asked.min(ENTRIES_MAX)).collect();
        let next = rest.peek().and(page.last()).map(|(key, _)| *key);
        Ok(Response::xml(page_xml(bucket, prefix, &page, next)))
    }
}

/// Adds the objects whose keys begin with `prefix`. `base` is the key of `folder`. With `by_folder`, all objects in one
/// folder after the prefix become a single entry.
fn collect(
    folder: &Path,
    base: &str,
    prefix: &str,
    by_folder: bool,
    entries: &mut BTreeMap<String, Entry>,
) -> Result<()> {
    let listed = match folder.read_dir() {
        // Another request has removed the folder meanwhile.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        listed => listed?,
    };
    for found in listed {
        let found = found?;
        let Ok(metadata) = found.path().metadata() else { continue };
        let mut key = format!("{base}{}", found.file_name().to_string_lossy());
        if !metadata.is_dir() {
            if key.starts_with(prefix) {
                let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                entries.insert(key, Entry::Object { size: metadata.len(), modified });
            }
            continue;
        }
        key.push('/');
        let is_behind_prefix = key.len() > prefix.len() && key.starts_with(prefix);
        if by_folder && is_behind_prefix {
            if has_objects(&found.path())? {
                entries.insert(key, Entry::Prefix);
            }
        } else if is_behind_prefix || prefix.starts_with(&key) {
            collect(&found.path(), &key, prefix, by_folder, entries)?;
        }
    }
    Ok(())
}

/// Whether a folder contains files; S3 does not list empty folders.
fn has_objects(folder: &Path) -> Result<bool> {
    for found in folder.read_dir()? {
        let path = found?.path();
        if !path.is_dir() || has_objects(&path)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn page_xml(bucket: &str, prefix: &str, page: &[(&String, &Entry)], next: Option<&String>) -> String {
    let mut xml = format!(
        "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>{}</Name><Prefix>{}</Prefix>\
         <KeyCount>{}</KeyCount><MaxKeys>{ENTRIES_MAX}</MaxKeys><IsTruncated>{}</IsTruncated>",
        escape(bucket),
        escape(prefix),
        page.len(),
        next.is_some(),
    );
    if let Some(next) = next {
        xml.push_str(&format!("<NextContinuationToken>{}</NextContinuationToken>", escape(next)));
    }
    for (key, entry) in page {
        let key = escape(key);
        match entry {
            Entry::Object { size, modified } => xml.push_str(&format!(
                "<Contents><Key>{key}</Key><LastModified>{}</LastModified><ETag>{}</ETag><Size>{size}</Size>\
                 <StorageClass>STANDARD</StorageClass></Contents>",
                listing_date(*modified),
                escape(&etag(*size, *modified)),
            )),
            Entry::Prefix => xml.push_str(&format!("<CommonPrefixes><Prefix>{key}</Prefix></CommonPrefixes>")),
        }
    }
    xml.push_str("</ListBucketResult>");
    xml
}
