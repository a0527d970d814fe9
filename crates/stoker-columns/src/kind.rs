//! What a kind of column answers, and how the kind of a field is found.

use arrow_array::ArrayRef;
use arrow_schema::{ArrowError, Field, Schema};

use crate::ingest::{Cast, Ingest};
use crate::metadata::HEAVY_KEY;
use crate::scalar::Scalar;
use crate::{HEAVY_ROW_BYTES, MARKED, Mismatch, NumpyShape, Storage, TYPES, fixed_row_bytes, is_blob};

/// A kind of column: what is the same for all columns whose values mean the same.
///
/// All methods that take a field may rely on [`ColumnKind::holds`] for it.
pub trait ColumnKind: Sync {
    /// The name, which is a part of Python's interface.
    fn name(&self) -> &'static str;

    /// Whether a column is of this kind, if no kind before it in the tables holds the field.
    fn holds(&self, field: &Field) -> bool;

    /// Describes a column for people, such as `tensor uint8[3, 224, 224]`.
    fn label(&self, field: &Field) -> String;

    /// The shape of the NumPy array of a column.
    fn numpy(&self, field: &Field) -> NumpyShape;

    /// The kind as which a column is treated where this kind says nothing else; `None` if it is treated as itself.
    fn treated_as(&self, _field: &Field) -> Option<&'static dyn ColumnKind> {
        None
    }

    /// Whether a column is heavy if its metadata does not tell. [`is_heavy`] asks the metadata first.
    fn is_heavy(&self, field: &Field) -> bool {
        match self.treated_as(field) {
            Some(kind) => kind.is_heavy(field),
            None => fixed_row_bytes(field.data_type()).is_some_and(|bytes| bytes > HEAVY_ROW_BYTES),
        }
    }

    /// How the values of a column are stored.
    fn storage(&self, field: &Field) -> Storage {
        self.treated_as(field).map_or_else(|| Storage::of(field), |kind| kind.storage(field))
    }

    /// The field with which rows from Python are written, if no table gives another one.
    fn canonical(&self, field: &Field) -> Field {
        self.treated_as(field).map_or_else(|| field.clone(), |kind| kind.canonical(field))
    }

    /// Returns a column with the type of `field`, as far as that needs no copy of the values.
    ///
    /// # Errors
    /// Nulls that the type forbids.
    fn fit(&self, field: &Field, column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        self.treated_as(field).map_or_else(|| Ok(column.clone()), |kind| kind.fit(field, column))
    }

    /// Checks that the values are what the kind says.
    ///
    /// # Errors
    /// The first value that is not.
    fn check(&self, _field: &Field, _column: &ArrayRef) -> Result<(), Mismatch> {
        Ok(())
    }

    /// How a column of another system becomes a column of this kind, if that system declares it as one in its own way.
    fn recognise(&self, _schema: &Schema, _field: &Field) -> Option<Ingest> {
        None
    }

    /// How a column of another system is ingested that has the plain type of `field`.
    fn ingest(&self, field: Field) -> Ingest {
        match self.treated_as(&field) {
            Some(kind) => kind.ingest(field),
            None => Ingest::new(field, Cast),
        }
    }
}

/// Returns the kind of a column.
pub fn kind_of(field: &Field) -> &'static dyn ColumnKind {
    let marked = MARKED.into_iter().find(|kind| kind.holds(field));
    marked.unwrap_or_else(|| of_type(field))
}

/// Returns the kind that the type of a column tells, whatever the metadata marks.
pub(crate) fn of_type(field: &Field) -> &'static dyn ColumnKind {
    TYPES.into_iter().find(|kind| kind.holds(field)).unwrap_or(&Scalar)
}

/// Returns whether a column is heavy: streams fetch its values by chunk scans, and filtering does not read it unless a
/// predicate names it.
///
/// A column of Lance blobs is heavy: a scan of its pages gives no values. For others, [`HEAVY_KEY`] decides where it is
/// present. Otherwise a fixed-width column is heavy if it has more than [`HEAVY_ROW_BYTES`] per row, and a binary
/// column is always heavy. Texts and lists of variable length are light.
pub fn is_heavy(field: &Field) -> bool {
    if is_blob(field) {
        return true;
    }
    match field.metadata().get(HEAVY_KEY).map(String::as_str) {
        Some("true") => true,
        Some("false") => false,
        _ => kind_of(field).is_heavy(field),
    }
}
