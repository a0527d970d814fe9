//! The columns of samples, which the endings of their fields tell.

use std::borrow::Cow;
use std::collections::HashMap;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::member_name::KEY;
use super::npy::NpyArrays;
use super::tar_samples::TarSample;
use crate::values::{BatchRows, FieldValue, Media, integer, json, media_of, named_media, text};
use crate::{Error, FormatOptions, Result};

/// How the files of a field become values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FieldKind {
    Media(Media),
    /// A decimal number.
    Integer,
    Text,
    Json,
    /// NPY files, or bytes if they do not have one type and shape.
    Npy(Option<NpyArrays>),
    /// Files as they are, among them pickles, which are never read.
    Bytes,
}

impl FieldKind {
    /// Returns what the ending of a field tells, in the sense of the library `webdataset`.
    fn of(field: &str) -> Self {
        match field.rsplit('.').next().unwrap_or_default() {
            "jpg" | "jpeg" | "png" | "webp" => Self::Media(Media::Image),
            "mp4" | "mov" | "mkv" | "webm" => Self::Media(Media::Video),
            "wav" | "flac" | "mp3" | "ogg" | "opus" | "m4a" => Self::Media(Media::Sound),
            "cls" | "cls2" | "index" => Self::Integer,
            "txt" | "text" | "transcript" => Self::Text,
            "json" => Self::Json,
            "npy" => Self::Npy(None),
            _ => Self::Bytes,
        }
    }

    fn field(&self, name: &str) -> Field {
        match self {
            Self::Media(media) => media.field(name),
            Self::Integer => Field::new(name, DataType::Int64, true),
            Self::Text | Self::Json => Field::new(name, DataType::Utf8, true),
            Self::Npy(Some(arrays)) => arrays.field(name),
            Self::Npy(None) | Self::Bytes => Field::new(name, DataType::LargeBinary, true),
        }
    }

    fn read<'a>(&self, bytes: &'a [u8]) -> Result<FieldValue<'a>, String> {
        match self {
            Self::Media(_) | Self::Npy(None) | Self::Bytes => Ok(FieldValue::Bytes(Cow::Borrowed(bytes))),
            Self::Integer => integer(bytes),
            Self::Text => text(bytes),
            Self::Json => json(bytes),
            Self::Npy(Some(arrays)) => arrays.read(bytes),
        }
    }
}

/// A column of samples.
#[derive(Debug)]
pub(super) struct TarColumn {
    pub name: String,
    pub kind: FieldKind,
}

/// The columns of samples, without the key.
#[derive(Debug)]
pub(super) struct TarColumns {
    columns: Vec<TarColumn>,
    positions: HashMap<String, usize>,
    schema: SchemaRef,
    /// From where the columns are known, for messages.
    sampled: String,
}

/// What samples say about a field.
struct SeenField {
    name: String,
    /// The number of samples that have it.
    count: usize,
    /// The type and shape of all its NPY files, if they have one.
    arrays: Option<NpyArrays>,
}

/// The fields of the first samples, in the order in which they appear.
#[derive(Default)]
pub(super) struct SeenFields {
    fields: Vec<SeenField>,
    positions: HashMap<String, usize>,
    /// The number of samples without a problem.
    num_samples: usize,
}

impl SeenFields {
    pub fn num_samples(&self) -> usize {
        self.num_samples
    }

    pub fn num_fields(&self) -> usize {
        self.fields.len()
    }

    /// Adds a sample.
    pub fn add(&mut self, sample: &TarSample) {
        if sample.problem.is_some() {
            return;
        }
        self.num_samples += 1;
        for member in &sample.fields {
            let is_npy = matches!(FieldKind::of(&member.field), FieldKind::Npy(_));
            let arrays = if is_npy { NpyArrays::of(sample.bytes(member)) } else { None };
            let seen = self.positions.get(&member.field).and_then(|at| self.fields.get_mut(*at));
            match seen {
                Some(seen) => {
                    seen.count += 1;
                    seen.arrays = seen.arrays.take().filter(|before| arrays.as_ref() == Some(before));
                }
                None => {
                    self.positions.insert(member.field.clone(), self.fields.len());
                    self.fields.push(SeenField { name: member.field.clone(), count: 1, arrays });
                }
            }
        }
    }

    /// Returns the columns. Tensors have no nulls, so NPY files that a sample lacks stay bytes.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for an option that names no column, or a column that another one names.
    pub fn columns(self, options: &FormatOptions, file: &str) -> Result<TarColumns> {
        let names: Vec<&str> = self.fields.iter().map(|seen| seen.name.as_str()).collect();
        if let Some((option, _, name)) = named_media(options).find(|(_, _, name)| !names.contains(name)) {
            let reason = format!("there is no column {name} in {file}; its columns are {}", names.join(", "));
            return Err(Error::InvalidOption { option: option.into(), reason });
        }
        let mut columns = Vec::with_capacity(self.fields.len());
        for seen in self.fields {
            let kind = match (media_of(options, &seen.name)?, FieldKind::of(&seen.name)) {
                (Some(media), _) => FieldKind::Media(media),
                (None, FieldKind::Npy(_)) => {
                    let is_complete = |arrays: &NpyArrays| seen.count == self.num_samples || arrays.shape.is_empty();
                    FieldKind::Npy(seen.arrays.filter(is_complete))
                }
                (None, kind) => kind,
            };
            columns.push(TarColumn { name: seen.name, kind });
        }
        let key = Field::new(KEY, DataType::Utf8, false);
        let fields = columns.iter().map(|column| column.kind.field(&column.name));
        let schema = Schema::new(std::iter::once(key).chain(fields).collect::<Vec<_>>());
        let sampled = format!("the first {} samples of {file}", self.num_samples);
        Ok(TarColumns { columns, positions: self.positions, schema: schema.into(), sampled })
    }
}

impl TarColumns {
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Adds a sample to a batch, or says why it cannot become a row.
    pub fn add(&self, sample: &TarSample, row: u64, batch: &mut BatchRows) {
        match self.values(sample) {
            Ok(values) => batch.push(row, &values),
            Err(reason) => batch.refuse(row, format!("{}, {reason}", sample.shown())),
        }
    }

    fn values<'a>(&self, sample: &'a TarSample) -> Result<Vec<FieldValue<'a>>, String> {
        if let Some(problem) = &sample.problem {
            return Err(problem.clone());
        }
        let mut values = vec![FieldValue::Null; self.columns.len() + 1];
        let mut put = |at: usize, value| {
            if let Some(slot) = values.get_mut(at) {
                *slot = value;
            }
        };
        put(0, text(&sample.key)?);
        let mut has_media = false;
        for member in &sample.fields {
            let found = self.positions.get(&member.field).and_then(|at| Some((at + 1, self.columns.get(*at)?)));
            let Some((at, column)) = found else {
                let advice = "plan with more samples, so that it becomes a column";
                return Err(format!("field {}: {} do not have it; {advice}", member.field, self.sampled));
            };
            has_media |= matches!(column.kind, FieldKind::Media(_));
            let value = column.kind.read(sample.bytes(member));
            put(at, value.map_err(|reason| format!("column {}: {reason}", column.name))?);
        }
        self.check_missing(&values, has_media)?;
        Ok(values)
    }

    /// Checks that a sample has media if samples have some, and all tensors.
    fn check_missing(&self, values: &[FieldValue<'_>], has_media: bool) -> Result<(), String> {
        let is_media = |column: &&TarColumn| matches!(column.kind, FieldKind::Media(_));
        if !has_media && self.columns.iter().any(|column| is_media(&column)) {
            let names: Vec<&str> = self.columns.iter().filter(is_media).map(|column| column.name.as_str()).collect();
            return Err(format!("the sample has no media, which would be in {}", names.join(", ")));
        }
        let fields = self.schema.fields().iter().zip(values);
        match fields.into_iter().find(|(field, value)| !field.is_nullable() && **value == FieldValue::Null) {
            Some((field, _)) => Err(format!("column {}: it is missing, and tensors cannot be null", field.name())),
            None => Ok(()),
        }
    }
}
