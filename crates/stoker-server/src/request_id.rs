//! Ids of requests, by which operators find their log lines and errors.

use std::fmt;
use std::sync::Arc;

use stoker_clock::Random;
use tonic::codegen::http::{HeaderMap, HeaderName, HeaderValue};
use tracing::Instrument;

/// The header that carries the id of a request, in both directions.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The maximum length of an id in characters.
const LENGTH_MAX: usize = 64;

tokio::task_local! {
    static CURRENT: RequestId;
}

/// The id of a request: the one that the client sent, or a random one.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(Arc<str>);

impl RequestId {
    /// Returns the id of a request with these headers. An id of the client is ignored if it is long or has other
    /// characters than ASCII letters, digits, `-`, `_` and `.`, because it could be mistaken for something else in a
    /// log.
    pub fn of(headers: &HeaderMap, random: &Random) -> Self {
        let is_plain = |name: &&str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            (1..=LENGTH_MAX).contains(&name.len()) && name.bytes().all(is_plain)
        };
        let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()).filter(is_plain);
        given.map_or_else(|| Self::random(random), |name| Self(name.into()))
    }

    /// Returns a random id: 64 bits as 16 hexadecimal digits.
    fn random(random: &Random) -> Self {
        Self(format!("{:016x}", random.number()).into())
    }

    /// Returns the id of the request that the current task works for.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// Runs work as part of this request.
    pub async fn scope<F: Future>(self, work: F) -> F::Output {
        CURRENT.scope(self, work).await
    }

    /// Returns the id as the value of a header.
    pub fn to_header(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(&self.0).ok()
    }
}

/// Wraps work for another task, so that it belongs to the request and the tracing span of the current one.
pub(crate) fn for_request<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let (id, work) = (RequestId::current(), work.in_current_span());
    async move {
        match id {
            Some(id) => id.scope(work).await,
            None => work.await,
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(given: &str, random: &Random) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(REQUEST_ID, HeaderValue::from_str(given).expect("a header"));
        RequestId::of(&headers, random).to_string()
    }

    #[test]
    fn plain_names_are_kept_and_others_replaced() {
        let random = Random::given([0xab, u64::MAX, 0]);
        assert_eq!(name("job-7.step_41337", &random), "job-7.step_41337");
        let digits = ["00000000000000ab", "ffffffffffffffff", "0000000000000000"];
        for (other, digits) in ["", "two words", "a=b", "\"", &"x".repeat(65)].into_iter().zip(digits.iter().cycle()) {
            assert_eq!(name(other, &random), *digits, "{other:?}");
        }
        let machine = Random::default();
        assert_ne!(name("", &machine), name("", &machine));
    }
}
