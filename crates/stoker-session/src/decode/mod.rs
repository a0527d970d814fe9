//! Decoding of the columns of a stream.
//!
//! ```text
//! DecodeOptions ──► DecodedColumns ◄── DecodeStage: batches before the consumer asks for them
//! column → decoder   BatchDecoders  ◄── RowSubstitutes: other rows in place of those that cannot be decoded
//! ```

mod clips;
mod columns;
mod custom;
mod options;
mod sounds;
mod stage;
mod substitutes;
mod tensors;
mod texts;

pub use clips::VideoOptions;
pub(crate) use columns::DecodedColumns;
pub use custom::{CustomDecoder, LoadDecoder, SavedDecoder};
pub use options::{ColumnDecoder, DecodeOptions, ImageOptions};
pub use sounds::AudioOptions;
pub(crate) use stage::DecodeStage;
pub(crate) use substitutes::RowSubstitutes;
pub use tensors::TensorDecoder;
