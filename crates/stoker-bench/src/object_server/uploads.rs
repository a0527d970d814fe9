//! Multipart uploads.

use std::fs::{self, File};
use std::io::{Error, ErrorKind, Result};
use std::path::PathBuf;

use crate::object_server::Store;
use crate::object_server::http::{Exchange, Request, Response};
use crate::object_server::xml::escape;

impl Store {
    pub(super) fn begin_upload(&self, bucket: &str, key: &str) -> Result<Response> {
        let folder = self.incomplete()?;
        fs::create_dir(&folder)?;
        let id = folder.file_name().unwrap_or_default().to_string_lossy();
        Ok(Response::xml(format!(
            "<InitiateMultipartUploadResult><Bucket>{}</Bucket><Key>{}</Key><UploadId>{id}</UploadId>\
             </InitiateMultipartUploadResult>",
            escape(bucket),
            escape(key),
        )))
    }

    pub(super) fn put_part(&self, request: &Request, exchange: &mut Exchange<'_>) -> Result<Response> {
        let number = request.query("partNumber").and_then(|number| number.parse::<u32>().ok());
        let number = number.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "a part needs a number"))?;
        // The names sort in the order of the numbers.
        let mut part = File::create(self.upload(request)?.join(format!("{number:010}")))?;
        let bytes = exchange.copy_body(&mut part)?;
        Ok(Response::new(200).with_header("ETag", format!("\"{number:x}-{bytes:x}\"")))
    }

    /// Concatenates all parts in the order of their numbers.
    pub(super) fn finish_upload(&self, bucket: &str, key: &str, request: &Request) -> Result<Response> {
        let folder = self.upload(request)?;
        let mut parts = folder.read_dir()?.map(|part| Ok(part?.path())).collect::<Result<Vec<PathBuf>>>()?;
        parts.sort();
        let joined = self.incomplete()?;
        let mut file = File::create(&joined)?;
        for part in parts {
            std::io::copy(&mut File::open(part)?, &mut file)?;
        }
        let published = self.publish(&joined, bucket, key, request)?;
        fs::remove_dir_all(folder)?;
        let Some(etag) = published else {
            return Ok(Response::error(412, "PreconditionFailed", "the object exists"));
        };
        Ok(Response::xml(format!(
            "<CompleteMultipartUploadResult><Bucket>{}</Bucket><Key>{}</Key><ETag>{}</ETag>\
             </CompleteMultipartUploadResult>",
            escape(bucket),
            escape(key),
            escape(&etag),
        )))
    }

    pub(super) fn abort_upload(&self, request: &Request) -> Result<Response> {
        fs::remove_dir_all(self.upload(request)?)?;
        Ok(Response::new(204))
    }

    /// Returns the folder of an upload's parts.
    fn upload(&self, request: &Request) -> Result<PathBuf> {
        let id = request.query("uploadId").filter(|id| super::is_safe(id) && !id.contains('/'));
        let folder = self.incomplete()?.with_file_name(id.unwrap_or("none"));
        if folder.is_dir() { Ok(folder) } else { Err(Error::new(ErrorKind::NotFound, "there is no such upload")) }
    }
}
