//! Counts of requests and bytes.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of requests and bytes so far.
#[derive(Default)]
pub struct Stats {
    get: AtomicU64,
    head: AtomicU64,
    list: AtomicU64,
    put: AtomicU64,
    /// Requests with other methods.
    other: AtomicU64,
    /// The bytes of the response bodies that were sent.
    bytes_sent: AtomicU64,
}

impl Stats {
    /// Counts a request by its method; `GET` of a bucket counts as a listing.
    pub fn count(&self, method: &str, is_bucket: bool) {
        let counter = match (method, is_bucket) {
            ("GET", true) => &self.list,
            ("GET", false) => &self.get,
            ("HEAD", _) => &self.head,
            ("PUT", _) => &self.put,
            _ => &self.other,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts bytes of a response body.
    pub fn add_sent(&self, bytes: u64) {
        self.bytes_sent.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns all counts as JSON: `requests` is the sum over all methods, `bytes` counts the bodies that were sent.
    pub fn to_json(&self) -> String {
        let counts = [&self.get, &self.head, &self.list, &self.put, &self.other];
        let [get, head, list, put, other] = counts.map(|count| count.load(Ordering::Relaxed));
        let (requests, bytes) = (get + head + list + put + other, self.bytes_sent.load(Ordering::Relaxed));
        format!(
            r#"{{"requests":{requests},"bytes":{bytes},"get":{get},"head":{head},"list":{list},"put":{put},"other":{other}}}"#
        )
    }
}
