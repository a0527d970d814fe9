//! Tokenizers as plain data, for copies in other processes.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{TextTokenizer, TokenOptions};

/// A tokenizer as plain data: the text of its file, so that a process without the file can make it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved<'a> {
    name: Cow<'a, str>,
    json: Cow<'a, str>,
    options: Cow<'a, TokenOptions>,
}

impl Serialize for TextTokenizer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (name, json, options) = (self.name().into(), self.json().into(), Cow::Borrowed(self.options()));
        Saved { name, json, options }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TextTokenizer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Saved { name, json, options } = Saved::deserialize(deserializer)?;
        Self::try_new(&name, json.into_owned(), options.into_owned()).map_err(de::Error::custom)
    }
}
