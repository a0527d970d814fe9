//! Values that rows of text files add one by one, and that can be taken back.

use std::collections::HashMap;

use arrow_schema::{DataType, Field, TimeUnit};

/// The type of the values of a text file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TextType {
    Boolean,
    /// A whole number of 64 bits.
    Integer,
    /// A whole number of 64 bits that is not negative.
    Unsigned,
    Float,
    Text,
    /// Days since 1970.
    Date,
    /// Microseconds since 1970, in UTC or without a time zone.
    Timestamp {
        is_utc: bool,
    },
    List(Box<TextType>),
    Struct(Vec<(String, TextType)>),
}

impl TextType {
    /// The type as messages have it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::Integer => "int64",
            Self::Unsigned => "uint64",
            Self::Float => "float64",
            Self::Text => "text",
            Self::Date => "date",
            Self::Timestamp { .. } => "timestamp",
            Self::List(_) => "list",
            Self::Struct(_) => "object",
        }
    }

    /// The type of the column.
    pub fn data_type(&self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Integer => DataType::Int64,
            Self::Unsigned => DataType::UInt64,
            Self::Float => DataType::Float64,
            Self::Text => DataType::Utf8,
            Self::Date => DataType::Date32,
            Self::Timestamp { is_utc } => DataType::Timestamp(TimeUnit::Microsecond, is_utc.then(|| "UTC".into())),
            Self::List(item) => DataType::List(Field::new("item", item.data_type(), true).into()),
            Self::Struct(fields) => {
                let field = |(name, inner): &(String, TextType)| Field::new(name, inner.data_type(), true);
                DataType::Struct(fields.iter().map(field).collect())
            }
        }
    }
}

/// The values of a column.
#[derive(Debug)]
pub(crate) struct TextColumn {
    pub text_type: TextType,
    /// Whether the value of each row is not null.
    pub valid: Vec<bool>,
    pub values: TextValues,
}

/// The values, with zeros for nulls.
#[derive(Debug)]
pub(crate) enum TextValues {
    Boolean(Vec<bool>),
    Integer(Vec<i64>),
    Unsigned(Vec<u64>),
    Float(Vec<f64>),
    Text { ends: Vec<i32>, text: Vec<u8> },
    List { ends: Vec<i32>, items: Box<TextColumn> },
    Struct { fields: Vec<TextColumn>, index: HashMap<String, usize> },
}

impl TextColumn {
    pub fn new(text_type: TextType) -> Self {
        let values = match &text_type {
            TextType::Boolean => TextValues::Boolean(Vec::new()),
            TextType::Integer | TextType::Date | TextType::Timestamp { .. } => TextValues::Integer(Vec::new()),
            TextType::Unsigned => TextValues::Unsigned(Vec::new()),
            TextType::Float => TextValues::Float(Vec::new()),
            TextType::Text => TextValues::Text { ends: vec![0], text: Vec::new() },
            TextType::List(item) => {
                TextValues::List { ends: vec![0], items: Box::new(Self::new(item.as_ref().clone())) }
            }
            TextType::Struct(fields) => TextValues::Struct {
                fields: fields.iter().map(|(_, field)| Self::new(field.clone())).collect(),
                index: fields.iter().enumerate().map(|(at, (name, _))| (name.clone(), at)).collect(),
            },
        };
        Self { text_type, valid: Vec::new(), values }
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.valid.len()
    }

    /// Adds a null, and returns the number of values that were added to the column and to those in it.
    pub fn push_null(&mut self) -> usize {
        self.valid.push(false);
        match &mut self.values {
            TextValues::Boolean(values) => values.push(false),
            TextValues::Integer(values) => values.push(0),
            TextValues::Unsigned(values) => values.push(0),
            TextValues::Float(values) => values.push(0.0),
            TextValues::Text { ends, .. } | TextValues::List { ends, .. } => repeat_end(ends),
            TextValues::Struct { fields, .. } => return fields.iter_mut().map(Self::push_null).sum::<usize>() + 1,
        }
        1
    }

    /// Adds text to a column of text.
    ///
    /// # Errors
    /// The reason, if the column has other values or the batch has too much text.
    pub fn push_text(&mut self, value: &str) -> Result<(), String> {
        let TextValues::Text { ends, text } = &mut self.values else { return Err(self.expected("text")) };
        let end = text.len().checked_add(value.len()).and_then(|end| i32::try_from(end).ok());
        ends.push(end.ok_or("the batch has more than 2 GiB of text")?);
        text.extend_from_slice(value.as_bytes());
        self.valid.push(true);
        Ok(())
    }

    /// Adds a list, whose items were added.
    ///
    /// # Errors
    /// The reason, if the column has other values or the batch has too many items.
    pub fn end_list(&mut self) -> Result<(), String> {
        let TextValues::List { ends, items } = &mut self.values else { return Err(self.expected("a list")) };
        ends.push(i32::try_from(items.len()).map_err(|_| "the batch has more than 2^31 items in lists")?);
        self.valid.push(true);
        Ok(())
    }

    /// Returns what is wrong with a value.
    pub fn expected(&self, found: &str) -> String {
        format!("expected {}, found {found}", self.text_type.word())
    }

    /// Returns the text of the last row; `None` for nulls and other values.
    pub fn last_text(&self) -> Option<&str> {
        let TextValues::Text { ends, text } = &self.values else { return None };
        let [.., start, end] = ends.as_slice() else { return None };
        let range = usize::try_from(*start).ok()?..usize::try_from(*end).ok()?;
        let is_valid = self.valid.last().copied().unwrap_or(false);
        std::str::from_utf8(text.get(range)?).ok().filter(|_| is_valid)
    }

    /// The columns in a column of structs.
    pub fn fields(&self) -> &[TextColumn] {
        match &self.values {
            TextValues::Struct { fields, .. } => fields,
            _ => &[],
        }
    }

    /// Takes back all rows but the first ones, also values that were added to columns in this one.
    pub fn truncate(&mut self, len: usize) {
        self.valid.truncate(len);
        match &mut self.values {
            TextValues::Boolean(values) => values.truncate(len),
            TextValues::Integer(values) => values.truncate(len),
            TextValues::Unsigned(values) => values.truncate(len),
            TextValues::Float(values) => values.truncate(len),
            TextValues::Text { ends, text } => text.truncate(last_end(ends, len)),
            TextValues::List { ends, items } => items.truncate(last_end(ends, len)),
            TextValues::Struct { fields, .. } => fields.iter_mut().for_each(|field| field.truncate(len)),
        }
    }
}

fn repeat_end(ends: &mut Vec<i32>) {
    ends.push(ends.last().copied().unwrap_or(0));
}

/// Leaves the ends of the first rows, and returns the last one.
fn last_end(ends: &mut Vec<i32>, len: usize) -> usize {
    ends.truncate(len.saturating_add(1));
    ends.last().and_then(|end| usize::try_from(*end).ok()).unwrap_or(0)
}
