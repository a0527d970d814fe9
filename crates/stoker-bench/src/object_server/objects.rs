//! Reads, creates, replaces and removes objects.

use std::fs::{self, File};
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::object_server::Store;
use crate::object_server::dates::http_date;
use crate::object_server::http::{Body, Exchange, Request, Response};
use crate::object_server::range::{RangeHeader, wanted};
use crate::object_server::xml::{escape, texts};

/// The folder, next to the buckets, for incomplete uploads; no bucket can have its name.
const INCOMPLETE: &str = ".incomplete";

impl Store {
    pub(super) fn head_bucket(&self, bucket: &str) -> Response {
        Response::new(if self.dir.join(bucket).is_dir() { 200 } else { 404 })
    }

    pub(super) fn create_bucket(&self, bucket: &str) -> Result<Response> {
        fs::create_dir_all(self.dir.join(bucket))?;
        Ok(Response::new(200))
    }

    /// Returns an object, a part of it, or, for `HEAD`, only its headers.
    pub(super) fn get(&self, bucket: &str, key: &str, request: &Request) -> Result<Response> {
        let file = File::open(self.dir.join(bucket).join(key))?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(ErrorKind::NotFound.into());
        }
        let (size, modified) = (metadata.len(), metadata.modified()?);
        let (status, range) = match wanted(request.header("range"), size) {
            RangeHeader::All => (200, 0..size),
            RangeHeader::Part(range) => (206, range),
            RangeHeader::Unsatisfiable => {
                let response = Response::error(416, "InvalidRange", "the object has no such bytes");
                return Ok(response.with_header("Content-Range", format!("bytes */{size}")));
            }
        };
        let mut response = Response::new(status)
            .with_header("Content-Type", "application/octet-stream")
            .with_header("Accept-Ranges", "bytes")
            .with_header("ETag", etag(size, modified))
            .with_header("Last-Modified", http_date(modified));
        if status == 206 {
            let places = format!("bytes {}-{}/{size}", range.start, range.end - 1);
            response = response.with_header("Content-Range", places);
        }
        Ok(response.with_body(match request.method.as_str() {
            "HEAD" => Body::Length(range.end - range.start),
            _ => Body::File(file, range),
        }))
    }

    /// Creates or replaces an object. With `If-None-Match: *`, it only creates one.
    pub(super) fn put(
        &self,
        bucket: &str,
        key: &str,
        request: &Request,
        exchange: &mut Exchange<'_>,
    ) -> Result<Response> {
        if request.header("x-amz-copy-source").is_some() {
            return Ok(Response::error(501, "NotImplemented", "the benchmark's store does not copy"));
        }
        let incomplete = self.incomplete()?;
        exchange.copy_body(&mut File::create(&incomplete)?)?;
        match self.publish(&incomplete, bucket, key, request)? {
            Some(etag) => Ok(Response::new(200).with_header("ETag", etag)),
            None => Ok(Response::error(412, "PreconditionFailed", "the object exists")),
        }
    }

    pub(super) fn delete(&self, bucket: &str, key: &str) -> Result<Response> {
        match fs::remove_file(self.dir.join(bucket).join(key)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(Response::new(204)),
        }
    }

    /// Removes the objects that the XML of `DeleteObjects` names.
    pub(super) fn delete_all(&self, bucket: &str, xml: &str) -> Result<Response> {
        let mut deleted = String::new();
        for key in texts(xml, "Key") {
            if super::is_safe(&key) {
                self.delete(bucket, &key)?;
            }
            deleted.push_str(&format!("<Deleted><Key>{}</Key></Deleted>", escape(&key)));
        }
        Ok(Response::xml(format!(
            "<DeleteResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{deleted}</DeleteResult>"
        )))
    }

    /// Returns a new path for a file, or a folder, that becomes an object later.
    pub(super) fn incomplete(&self) -> Result<PathBuf> {
        let folder = self.dir.join(INCOMPLETE);
        fs::create_dir_all(&folder)?;
        let number = self.uploads.fetch_add(1, Ordering::Relaxed);
        Ok(folder.join(format!("{}-{number}", std::process::id())))
    }

    /// Publishes a complete file as an object, atomically, and returns its tag; returns `None` if the object exists and
    /// the request forbids replacing it.
    pub(super) fn publish(
        &self,
        complete: &Path,
        bucket: &str,
        key: &str,
        request: &Request,
    ) -> Result<Option<String>> {
        let (root, target) = (self.dir.join(bucket), self.dir.join(bucket).join(key));
        if !root.is_dir() {
            fs::remove_file(complete)?;
            return Err(Error::new(ErrorKind::NotFound, "there is no such bucket"));
        }
        target.parent().map_or(Ok(()), fs::create_dir_all)?;
        if request.header("if-none-match") == Some("*") {
            let linked = fs::hard_link(complete, &target);
            fs::remove_file(complete)?;
            match linked {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
                linked => linked?,
            }
        } else {
            fs::rename(complete, &target)?;
        }
        let metadata = target.metadata()?;
        Ok(Some(etag(metadata.len(), metadata.modified()?)))
    }
}

/// Returns the tag of an object, from its size and modification time; this suffices because files are not changed in
/// place.
pub fn etag(size: u64, modified: SystemTime) -> String {
    let nanos = modified.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    format!("\"{nanos:x}-{size:x}\"")
}
