//! Adds the values of a JSON object to columns.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::lines::syntax;
use crate::text_rows::{TextColumn, TextType, TextValues};

/// The memory of a value of a fixed width, with its validity.
const VALUE_BYTES: usize = 9;

/// The most values of a row that are null because an object in it lacks the field. A row of many small objects in a list
/// could otherwise take much more memory than its line.
const NUM_MISSING_MAX: usize = 8 << 20;

/// The whole numbers up to this one are exact as `float64`.
const EXACT_FLOAT_MAX: u64 = 1 << 53;

/// Adds a row, and returns about how many bytes it takes. On errors, a part of the row may have been added.
///
/// # Errors
/// The reason: the line is no JSON object, or the path of the field that does not fit.
pub(super) fn append(line: &[u8], columns: &mut TextColumn) -> Result<usize, String> {
    if !line.trim_ascii_start().starts_with(b"{") {
        return Err("no JSON object".into());
    }
    let mut trace = RowTrace::default();
    let mut deserializer = serde_json::Deserializer::from_slice(line);
    let read = AppendJson { column: columns, trace: &mut trace }.deserialize(&mut deserializer);
    let read = read.and_then(|()| deserializer.end());
    match (read, trace.problem) {
        (_, Some(problem)) => Err(problem.to_string()),
        (Err(error), None) => Err(syntax(&error)),
        (Ok(()), None) => Ok(line.len().saturating_add(trace.num_missing.saturating_mul(VALUE_BYTES))),
    }
}

/// What is known of a row that is being added.
#[derive(Default)]
struct RowTrace {
    problem: Option<JsonMisfit>,
    num_missing: usize,
}

/// A value that does not fit its column.
struct JsonMisfit {
    /// The fields that lead to the value, the outermost last.
    path: Vec<String>,
    reason: String,
}

impl fmt::Display for JsonMisfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            let path: Vec<&str> = self.path.iter().rev().map(String::as_str).collect();
            write!(f, "field {}: ", path.join("."))?;
        }
        f.write_str(&self.reason)
    }
}

/// Adds one value to a column.
struct AppendJson<'a> {
    column: &'a mut TextColumn,
    trace: &'a mut RowTrace,
}

impl AppendJson<'_> {
    /// Ends the row.
    fn fail<E: serde::de::Error>(self, reason: String) -> E {
        self.trace.problem.get_or_insert(JsonMisfit { path: Vec::new(), reason });
        E::custom("a value does not fit")
    }

    fn expected<E: serde::de::Error>(self, found: &str) -> E {
        let reason = self.column.expected(found);
        self.fail(reason)
    }

    fn float<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        match &mut self.column.values {
            TextValues::Float(values) => values.push(value),
            _ => return Err(self.expected(&format!("the number {value}"))),
        }
        self.column.valid.push(true);
        Ok(())
    }

    /// Adds a whole number to a column of floats.
    fn whole<E: serde::de::Error>(self, magnitude: u64, is_negative: bool, shown: &str) -> Result<(), E> {
        if self.column.text_type == TextType::Float && magnitude > EXACT_FLOAT_MAX {
            return Err(self.fail(format!("{shown} is not exact as float64")));
        }
        #[expect(clippy::cast_precision_loss, reason = "the number is at most 2^53")]
        let value = magnitude as f64;
        match self.column.text_type {
            TextType::Float => self.float(if is_negative { -value } else { value }),
            _ => Err(self.expected(&format!("the number {shown}"))),
        }
    }
}

impl<'de> DeserializeSeed<'de> for AppendJson<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AppendJson<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.column.text_type.word())
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        let added = self.column.push_null();
        missing(self, added.saturating_sub(1))
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        match &mut self.column.values {
            TextValues::Boolean(values) => values.push(value),
            _ => return Err(self.expected("a boolean")),
        }
        self.column.valid.push(true);
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        match (&mut self.column.values, u64::try_from(value)) {
            (TextValues::Integer(values), _) => values.push(value),
            (TextValues::Unsigned(values), Ok(value)) => values.push(value),
            _ => return self.whole(value.unsigned_abs(), value < 0, &value.to_string()),
        }
        self.column.valid.push(true);
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        match (&mut self.column.values, i64::try_from(value)) {
            (TextValues::Unsigned(values), _) => values.push(value),
            (TextValues::Integer(values), Ok(value)) => values.push(value),
            _ => return self.whole(value, false, &value.to_string()),
        }
        self.column.valid.push(true);
        Ok(())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.float(value)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        match self.column.push_text(value) {
            Ok(()) => Ok(()),
            Err(reason) => Err(self.fail(reason)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let TextValues::List { items, .. } = &mut self.column.values else { return Err(self.expected("a list")) };
        while seq.next_element_seed(AppendJson { column: items, trace: self.trace })?.is_some() {}
        match self.column.end_list() {
            Ok(()) => Ok(()),
            Err(reason) => Err(self.fail(reason)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let len = self.column.len();
        if !matches!(self.column.values, TextValues::Struct { .. }) {
            return Err(self.expected("an object"));
        }
        fields(self.column, self.trace, len, map)?;
        self.column.valid.push(true);
        Ok(())
    }
}

/// Adds the fields of an object that is row `len` of a column.
fn fields<'de, A: MapAccess<'de>>(
    column: &mut TextColumn,
    trace: &mut RowTrace,
    len: usize,
    mut map: A,
) -> Result<(), A::Error> {
    let TextValues::Struct { fields, index } = &mut column.values else { return Ok(()) };
    while let Some(name) = map.next_key::<String>()? {
        let Some(field) = index.get(&name).and_then(|at| fields.get_mut(*at)) else {
            let reason = "the rows from which types were found do not have this field; raise the number of sampled rows, \
                          or rename the field";
            trace.problem.get_or_insert(JsonMisfit { path: vec![name], reason: reason.into() });
            return Err(A::Error::custom("an unknown field"));
        };
        if field.len() != len {
            let reason = "the object has this field twice".into();
            trace.problem.get_or_insert(JsonMisfit { path: vec![name], reason });
            return Err(A::Error::custom("a repeated field"));
        }
        let added = map.next_value_seed(AppendJson { column: field, trace });
        if let (Err(_), Some(problem)) = (&added, &mut trace.problem) {
            problem.path.push(name);
        }
        added?;
    }
    for field in fields.iter_mut().filter(|field| field.len() == len) {
        let added = field.push_null();
        missing(AppendJson { column: field, trace }, added)?;
    }
    Ok(())
}

/// Counts the values of fields that are missing.
fn missing<E: serde::de::Error>(append: AppendJson<'_>, added: usize) -> Result<(), E> {
    append.trace.num_missing = append.trace.num_missing.saturating_add(added);
    match append.trace.num_missing > NUM_MISSING_MAX {
        true => Err(append.fail(format!("more than {NUM_MISSING_MAX} values are missing in objects of the row"))),
        false => Ok(()),
    }
}
