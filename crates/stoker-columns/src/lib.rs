//! The kinds of columns: what the values of a column are, and all that follows from it.
//!
//! An Arrow field has a type and metadata. The kind of a column is found from both, and answers for all columns of its
//! sort how they are described, ingested, written, stored and shown:
//!
//! ```text
//!                    field: name, type, metadata
//!                                │ kind_of: the first kind of the tables that holds the field
//!                                ▼
//!  Parquet ──recognise, ingest─► ColumnKind ──label───► describe
//!  Python ───canonical, fit────►     │      ──numpy───► the shape of NumPy arrays and PyTorch tensors
//!            check                   │      ──is_heavy► where filters and streams find the values
//!                                    └──────storage───► data files: plain bytes or Lance's decoder, compression
//! ```
//!
//! Each kind has a folder, which says in `mod.rs` what the kind is. To add a kind, add a folder and a row in one of the
//! two tables: [`MARKED`] if metadata marks the columns, [`TYPES`] if their type tells. A kind must have a name, a label
//! and a NumPy shape; all else has a default.
//!
//! This crate has no I/O and knows no storage and no engine: how Lance lays out pages, and what prevents that a column is
//! read as plain bytes, is known to `stoker-lake`, which asks the kind for [`Storage`].

#![warn(clippy::disallowed_methods)]
#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

mod binary;
mod blob;
mod compressed_tensor;
mod dense_values;
pub mod encoded_image;
pub mod encoded_video;
mod ingest;
mod kind;
mod list;
mod lossy;
mod metadata;
mod mismatch;
mod numpy;
pub mod ragged;
mod row_validity;
mod scalar;
mod storage;
mod structs;
pub mod tensor;
mod text;
mod unencoded;
pub mod vector;
mod widen;
mod width;
mod written;

pub use blob::{blob_as_binary, has_nested_blobs, is_blob, without_blob_mark};
pub use compressed_tensor::{CompressedTensor, chosen_codec, is_compressed_tensor, with_codec};
pub use dense_values::dense_values;
pub use encoded_image::is_encoded_image;
pub use encoded_video::{index_columns, video_index_of, video_indexes, with_index_columns};
pub use ingest::{Conversion, Ingest, ingest};
pub use kind::{ColumnKind, is_heavy, kind_of};
pub use lossy::LossyColumn;
pub use metadata::{
    CODEC_KEY, DICTIONARY_KEY, DIM_NAMES_KEY, DTYPE_KEY, EXTENSION_METADATA_KEY, EXTENSION_NAME_KEY,
    FIXED_SHAPE_TENSOR, HEAVY_KEY, KIND_COMPRESSED_TENSOR, KIND_ENCODED_IMAGE, KIND_KEY, LOSSY_KEY, MASK_KEY,
    PERMUTATION_KEY, SHAPE_KEY, VARIABLE_SHAPE_TENSOR, VIDEO_INDEX_KEY, VIDEO_KEY, same_meaning,
};
pub use mismatch::Mismatch;
pub use numpy::{Nulls, NumpyShape, Rows};
pub use row_validity::{column_validity, row_validity};
pub use storage::Storage;
pub use tensor::{Element, SmallFloat, TensorSpec, TensorType, fitting, fitting_schema, is_bfloat16};
pub use unencoded::{unencoded, unencoded_schema};
pub use width::{HEAVY_ROW_BYTES, fixed_row_bytes};
pub use written::{WrongValue, fit, may_have_dictionaries, target_schema, with_dictionaries, wrong_value};

/// The kinds that metadata marks. A mark says what the values mean; where it says nothing, they are treated as the kind
/// of their type is.
pub static MARKED: [&dyn ColumnKind; 5] = [
    &encoded_image::EncodedImage,
    &encoded_video::EncodedVideo,
    &encoded_video::VideoIndexes,
    &compressed_tensor::Compressed,
    &blob::Blob,
];

/// The kinds that the type of a column tells. Exactly one of them holds each field.
pub static TYPES: [&dyn ColumnKind; 8] = [
    &tensor::Tensor,
    &vector::Vector,
    &ragged::Ragged,
    &text::Text,
    &binary::Binary,
    &list::List,
    &structs::Structs,
    &scalar::Scalar,
];

#[cfg(test)]
mod tests;
