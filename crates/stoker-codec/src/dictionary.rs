//! Dictionaries of Zstandard, which the small rows of a column share.

use std::fmt;
use std::num::NonZero;
use std::sync::Arc;

use zstd::dict::from_continuous;
use zstd::zstd_safe::{DDict, get_dict_id_from_dict};

use crate::{Codec, Encoder, Error, Result, RowType, byte_streams};

/// The most bytes of a dictionary.
pub const DICTIONARY_BYTES_MAX: usize = 64 << 10;

/// The most bytes of a row for which a dictionary is made: 4 KiB. Larger rows compress well alone.
pub const SMALL_ROW_BYTES_MAX: usize = 4 << 10;

/// The most bytes of a dictionary that is made. It is in the metadata of the column, which each version of the table has.
const TRAINED_BYTES_MAX: usize = 16 << 10;

/// The most bytes of rows that a dictionary is made of, and the fewest rows.
const SAMPLE_BYTES_MAX: usize = 100 * TRAINED_BYTES_MAX;
const SAMPLE_ROWS_MIN: usize = 64;

/// A dictionary is kept if other rows of the column become shorter by a tenth with it.
const SAVED_MIN: usize = 10;

/// A dictionary of Zstandard (RFC 8878, section 5), prepared for decoding.
#[derive(Clone)]
pub struct Dictionary(Arc<Prepared>);

struct Prepared {
    id: NonZero<u32>,
    bytes: Vec<u8>,
    decoding: DDict<'static>,
}

impl Dictionary {
    /// Parses a dictionary.
    ///
    /// # Errors
    /// [`Error::NoDictionary`] for bytes that are no dictionary with an id, and for more than [`DICTIONARY_BYTES_MAX`].
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let fail = |reason: String| Err(Error::NoDictionary { reason });
        if bytes.len() > DICTIONARY_BYTES_MAX {
            return fail(format!("it has {} bytes, more than {DICTIONARY_BYTES_MAX}", bytes.len()));
        }
        let Some(id) = get_dict_id_from_dict(bytes) else {
            return fail(format!("its {} bytes are no dictionary of Zstandard with an id", bytes.len()));
        };
        match DDict::try_create(bytes) {
            Some(decoding) => Ok(Self(Arc::new(Prepared { id, bytes: bytes.to_vec(), decoding }))),
            None => fail("it is damaged".into()),
        }
    }

    /// Makes a dictionary for the rows of a column, of some of its rows, one behind the other. `None` where a dictionary is
    /// of no use: for codecs without Zstandard, for large rows, for few rows, and for rows that do not become shorter by
    /// a tenth.
    ///
    /// # Errors
    /// [`Error::Internal`] if Zstandard has no memory.
    pub fn train(codec: Codec, row_type: &RowType, rows: &[u8]) -> Result<Option<Self>> {
        let row_bytes = row_type.num_bytes();
        let num_rows = rows.len() / row_bytes;
        let has_zstd = matches!(codec, Codec::Zstd { .. } | Codec::ByteStreamSplitZstd { .. });
        if !has_zstd || row_bytes > SMALL_ROW_BYTES_MAX || num_rows < 2 * SAMPLE_ROWS_MIN {
            return Ok(None);
        }
        // Rows from all over, so that each second one makes the dictionary, and the others judge it.
        let step = num_rows.div_ceil(2 * SAMPLE_BYTES_MAX / row_bytes).max(1);
        let chosen: Vec<&[u8]> = rows.chunks_exact(row_bytes).step_by(step).collect();
        let mut sample = Vec::with_capacity(chosen.len().div_ceil(2) * row_bytes);
        let mut split = vec![0; row_bytes];
        for row in chosen.iter().step_by(2) {
            match codec {
                Codec::ByteStreamSplitZstd { .. } => {
                    byte_streams::split(row_type.dtype().width(), row, &mut split);
                    sample.extend_from_slice(&split);
                }
                _ => sample.extend_from_slice(row),
            }
        }
        let sizes = vec![row_bytes; sample.len() / row_bytes];
        let bytes_max = TRAINED_BYTES_MAX.min(sample.len() / 8);
        // Zstandard makes none of rows that have nothing in common.
        let Ok(bytes) = from_continuous(&sample, &sizes, bytes_max) else { return Ok(None) };
        let Ok(dictionary) = Self::parse(&bytes) else { return Ok(None) };
        let judges = || chosen.iter().skip(1).step_by(2);
        let length = |dictionary: Option<&Self>| {
            let (mut encoder, mut frames) = (Encoder::try_new(codec, dictionary)?, Vec::new());
            judges().try_for_each(|row| encoder.encode(row_type, row, &mut frames))?;
            Ok::<usize, Error>(frames.len())
        };
        let (alone, together) = (length(None)?, length(Some(&dictionary))?);
        Ok(Some(dictionary).filter(|_| together <= alone - alone / SAVED_MIN))
    }

    /// The number that frames name.
    pub fn id(&self) -> u32 {
        self.0.id.get()
    }

    /// The bytes, as Zstandard defines them.
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    pub(crate) fn decoding(&self) -> &DDict<'static> {
        &self.0.decoding
    }
}

impl PartialEq for Dictionary {
    fn eq(&self, other: &Self) -> bool {
        self.0.bytes == other.0.bytes
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary").field("id", &self.0.id).field("num_bytes", &self.0.bytes.len()).finish()
    }
}
