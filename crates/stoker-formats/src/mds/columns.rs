//! The columns of all shards.

use std::collections::HashSet;

use arrow_schema::{Schema, SchemaRef};

use super::encoding::MdsEncoding;
use super::index::{IndexedColumns, MdsShard};
use super::ndarray;
use super::shard_reader::ShardReader;
use crate::values::{FieldValue, media_of, named_media};
use crate::{Error, Folder, FormatOptions, Result};

/// The most columns.
const COLUMNS_MAX: usize = 4096;

/// A column of shards.
#[derive(Clone, Debug)]
struct MdsColumn {
    name: String,
    encoding: MdsEncoding,
}

/// The columns of shards, in the order in which samples have them.
#[derive(Clone, Debug)]
pub(super) struct MdsColumns {
    columns: Vec<MdsColumn>,
    schema: SchemaRef,
}

impl MdsColumns {
    /// Returns the columns of shards, which must be equal.
    ///
    /// # Errors
    /// [`Error::Malformed`] for an index that contradicts itself; [`Error::Column`] for an encoding that is not read, and
    /// for arrays whose type the first sample does not say; [`Error::InvalidOption`].
    pub fn plan(folder: &dyn Folder, shards: &[&MdsShard], options: &FormatOptions) -> Result<Self> {
        let first = shards.first().ok_or_else(|| Error::malformed("", "there are no shards"))?;
        for shard in shards {
            if shard.columns != first.columns {
                let reason = format!("the columns of {} differ from those of {}", shard.file, first.file);
                return Err(Error::malformed(&shard.index, reason));
            }
        }
        check_columns(&first.columns).map_err(|reason| Error::malformed(&first.index, reason))?;
        let names = &first.columns.names;
        if let Some((option, _, name)) = named_media(options).find(|(_, _, name)| !names.iter().any(|n| n == name)) {
            let reason = format!("there is no column {name}; the columns are {}", names.join(", "));
            return Err(Error::InvalidOption { option: option.into(), reason });
        }
        let described = names.iter().zip(&first.columns.encodings).zip(&first.columns.sizes);
        let mut columns = described
            .map(|((name, encoding), size)| column(first, options, name, encoding, *size))
            .collect::<Result<Vec<_>>>()?;
        if columns.iter().any(|column| matches!(column.encoding, MdsEncoding::Array(_))) {
            look(folder, shards, &mut columns)?;
        }
        Ok(Self::new(columns))
    }

    fn new(columns: Vec<MdsColumn>) -> Self {
        let fields = columns.iter().map(|column| column.encoding.field(&column.name));
        let schema = Schema::new(fields.collect::<Vec<_>>()).into();
        Self { columns, schema }
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Reads the values of a sample.
    ///
    /// # Errors
    /// What is wrong with the sample, and the column.
    pub fn values<'a>(&self, sample: &'a [u8]) -> Result<Vec<FieldValue<'a>>, String> {
        let read = |(column, bytes): (&MdsColumn, &'a [u8])| {
            column.encoding.read(bytes).map_err(|reason| format!("column {}: {reason}", column.name))
        };
        split(&self.columns, sample)?.into_iter().map(read).collect()
    }
}

/// Checks that an index describes each column once.
fn check_columns(columns: &IndexedColumns) -> Result<(), String> {
    let (names, encodings, sizes) = (columns.names.len(), columns.encodings.len(), columns.sizes.len());
    if (encodings, sizes) != (names, names) {
        return Err(format!("it has {names} names, {encodings} encodings and {sizes} sizes of columns"));
    }
    if names == 0 || names > COLUMNS_MAX {
        return Err(format!("it has {names} columns, and 1 to {COLUMNS_MAX} are read"));
    }
    let mut seen = HashSet::new();
    match columns.names.iter().find(|name| !seen.insert(*name)) {
        Some(name) => Err(format!("it has the column {name} twice")),
        None => Ok(()),
    }
}

/// Makes a column from what an index and the options say.
fn column(
    shard: &MdsShard,
    options: &FormatOptions,
    name: &str,
    encoding: &str,
    size: Option<u64>,
) -> Result<MdsColumn> {
    let wrong = |reason| Error::Column { file: shard.index.clone(), column: name.into(), reason };
    let parsed = MdsEncoding::parse(encoding).map_err(wrong)?;
    if parsed.size() != size {
        let shown =
            |size: Option<u64>| size.map_or("values of different sizes".to_string(), |size| format!("{size} bytes"));
        return Err(wrong(format!("{encoding} has {}, and the index says {}", shown(parsed.size()), shown(size))));
    }
    let encoding = match (media_of(options, name)?, parsed) {
        (None, parsed) => parsed,
        (Some(media), MdsEncoding::Bytes | MdsEncoding::Media(_)) => MdsEncoding::Media(media),
        (Some(_), _) => {
            let named = named_media(options).find(|(_, _, named)| *named == name);
            let reason = format!("column {name} has the encoding {encoding}, which holds no files");
            return Err(Error::InvalidOption { option: named.map_or("", |(option, ..)| option).into(), reason });
        }
    };
    Ok(MdsColumn { name: name.to_string(), encoding })
}

/// Finds the types of arrays that the index does not say, from the first sample.
fn look(folder: &dyn Folder, shards: &[&MdsShard], columns: &mut [MdsColumn]) -> Result<()> {
    let Some(shard) = shards.iter().find(|shard| shard.num_samples > 0) else {
        return Ok(());
    };
    let mut reader = ShardReader::open(folder, shard)?;
    let sample = match reader.next()? {
        Some(Ok(sample)) => sample,
        Some(Err(_)) | None => return Err(Error::malformed(&shard.file, "sample 0 is too large")),
    };
    let values =
        split(columns, sample).map_err(|reason| Error::malformed(&shard.file, format!("sample 0: {reason}")))?;
    let values: Vec<&[u8]> = values.into_iter().map(|(_, value)| value).collect();
    for (column, value) in columns.iter_mut().zip(values) {
        let MdsEncoding::Array(declared) = &column.encoding else { continue };
        let has_type = declared.is_none();
        let (array, _, _) = ndarray::read(value, declared.as_ref()).map_err(|reason| {
            let reason = format!("sample 0: {reason}");
            Error::Column { file: shard.file.clone(), column: column.name.clone(), reason }
        })?;
        column.encoding = MdsEncoding::Ragged { has_type, array };
    }
    Ok(())
}

/// Splits a sample into the values of its columns: the sizes of those that have none of their own, then all values.
fn split<'a, 'c>(columns: &'c [MdsColumn], sample: &'a [u8]) -> Result<Vec<(&'c MdsColumn, &'a [u8])>, String> {
    let num_sizes = columns.iter().filter(|column| column.encoding.size().is_none()).count();
    let (head, mut rest) =
        sample.split_at_checked(num_sizes * 4).ok_or_else(|| format!("it has {} bytes only", sample.len()))?;
    let mut sizes = head.chunks_exact(4).map(|size| size.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
    let mut values = Vec::with_capacity(columns.len());
    for column in columns {
        let size = column.encoding.size().or_else(|| sizes.next()).unwrap_or(0);
        let found = usize::try_from(size).ok().and_then(|size| rest.split_at_checked(size));
        let (value, after) = found.ok_or_else(|| {
            format!("column {} has {size} bytes, and the sample has {} more", column.name, rest.len())
        })?;
        values.push((column, value));
        rest = after;
    }
    match rest.len() {
        0 => Ok(values),
        more => Err(format!("{more} bytes follow its last column")),
    }
}
