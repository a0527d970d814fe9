//! The type of a computed column, and its values as those of the table.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use stoker_columns::{MASK_KEY, fit, kind_of, target_schema, wrong_value};
use stoker_lake::Table;

use super::{ColumnMode, ComputedColumn};
use crate::writes::{RowNames, assign_all, column_of_type};
use crate::{Error, Result};

/// How values become those of a column.
pub(super) struct ColumnValues {
    /// The column and, if it has one, its mask.
    fields: Vec<Field>,
    /// Whether the type was declared: values are cast then.
    is_declared: bool,
}

impl ColumnValues {
    /// The columns that a journal has.
    pub fn of(schema: SchemaRef, is_declared: bool) -> Self {
        Self { fields: schema.fields().iter().map(|field| field.as_ref().clone()).collect(), is_declared }
    }

    /// A column of a type that the caller names.
    pub fn declared(column: &ComputedColumn, table: &Table, data_type: &str) -> Result<Self> {
        let field = match (column.mode, table.schema().field_with_name(&column.name)) {
            (ColumnMode::Fill, Ok(field)) => field.clone(),
            _ => column_of_type(&column.name, data_type, true)?,
        };
        Self::with_mask(column, table, field, true)
    }

    /// A column of the type of its first values.
    pub fn inferred(column: &ComputedColumn, table: &Table, values: &RecordBatch) -> Result<Self> {
        let field = match (column.mode, table.schema().field_with_name(&column.name)) {
            (ColumnMode::Fill, Ok(field)) => field.clone(),
            _ => target(column, &values.schema(), None)?,
        };
        Self::with_mask(column, table, field, false)
    }

    fn with_mask(column: &ComputedColumn, table: &Table, field: Field, is_declared: bool) -> Result<Self> {
        let schema = table.schema();
        let old = schema.field_with_name(&column.name).ok();
        let old_mask = old.and_then(|old| old.metadata().get(MASK_KEY)).cloned();
        let old_mask = old_mask.filter(|mask| column.mode != ColumnMode::Add && schema.field_with_name(mask).is_ok());
        let needs_mask = column.mode == ColumnMode::Add
            && column.has_predicate
            && (!field.is_nullable() || kind_of(&field).storage(&field).refuses_nulls);
        let mask = old_mask.or_else(|| needs_mask.then(|| format!("{}_valid", column.name)));
        let Some(mask) = mask else { return Ok(Self { fields: vec![field], is_declared }) };
        let mut metadata = field.metadata().clone();
        metadata.insert(MASK_KEY.into(), mask.clone());
        let fields = vec![field.with_metadata(metadata), Field::new(mask, DataType::Boolean, false)];
        Ok(Self { fields, is_declared })
    }

    /// The column and, if it has one, its mask.
    pub fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.fields.clone()))
    }

    /// Returns the values of rows as those of the table.
    ///
    /// # Errors
    /// [`Error::Refused`] for values of another type than those before, and for a value that does not fit, with its row.
    pub fn fit(&self, column: &ComputedColumn, addrs: &[u64], values: &RecordBatch) -> Result<RecordBatch> {
        let attempted = format!("computing {}", column.what());
        if values.num_columns() != 1 || values.num_rows() != addrs.len() {
            let counts = (values.num_columns(), values.num_rows(), addrs.len());
            let reason = format!("one column with {} values is needed, not {} with {}", counts.2, counts.0, counts.1);
            return Err(Error::refused(attempted, reason));
        }
        let Some(field) = self.fields.first() else { return Err(Error::internal("a column without a type")) };
        let own = Arc::new(Schema::new(vec![field.clone()]));
        let is_cast = self.is_declared || *values.column(0).data_type() == DataType::Null;
        let fitted = if is_cast {
            assign_all(&attempted, &own, &[Some(0)], values.columns(), addrs.len(), RowNames::Addresses(addrs))?
        } else {
            let found = target(column, &values.schema(), Some(&own))?;
            if found.data_type() != field.data_type() || meaning(&found) != meaning(field) {
                let rows = format!("the rows whose row_ids are {} to {}", addrs[0], addrs[addrs.len() - 1]);
                return Err(Error::refused(
                    format!("{attempted}: {rows}"),
                    format!(
                        "values of type {} are needed, as of the rows before, not {}; if an earlier call computed these, \
                         resume=False begins anew",
                        shown(field),
                        shown(&found)
                    ),
                ));
            }
            let fitted = fit(values, &own).map_err(|wrong| {
                let addr = wrong.mismatch.row.and_then(|row| addrs.get(row));
                let place = addr.map_or_else(String::new, |addr| format!(": the row whose row_id is {addr}"));
                Error::refused(format!("{attempted}{place}"), wrong.mismatch.to_string())
            })?;
            refuse_misfits(&attempted, field, addrs, &fitted)?;
            fitted
        };
        let mut columns: Vec<ArrayRef> = fitted.columns().to_vec();
        if self.fields.len() > 1 {
            columns.push(Arc::new(BooleanArray::from(vec![true; addrs.len()])));
        }
        let nullable = |field: &Field| field.clone().with_nullable(true);
        let schema = Schema::new(self.fields.iter().map(nullable).collect::<Vec<_>>());
        RecordBatch::try_new(with_types_of(schema, &columns), columns)
            .map_err(|source| Error::internal(format!("{attempted}: {source}")))
    }
}

/// The schema with the types that arrays have: items of fixed-size lists may be called otherwise.
fn with_types_of(schema: Schema, columns: &[ArrayRef]) -> SchemaRef {
    let fields = schema.fields().iter().zip(columns);
    let fields: Vec<Field> =
        fields.map(|(field, column)| field.as_ref().clone().with_data_type(column.data_type().clone())).collect();
    Arc::new(Schema::new(fields))
}

/// Returns the column of a table for values of a type.
fn target(column: &ComputedColumn, values: &Schema, existing: Option<&Schema>) -> Result<Field> {
    let fields = values.fields().iter().map(|field| field.as_ref().clone().with_name(&column.name));
    let named = Schema::new(fields.collect::<Vec<_>>());
    let refused = |reason: String| Error::refused(format!("computing {}", column.what()), reason);
    let target = target_schema(&named, existing).map_err(|source| refused(source.to_string()))?;
    match target.fields().first() {
        Some(field) if *field.data_type() == DataType::Null => {
            Err(refused("the first values are all NULL, so that the type is not known: give it as data_type".into()))
        }
        Some(field) => Ok(field.as_ref().clone()),
        None => Err(refused("there are no values".into())),
    }
}

/// What the metadata of a field says about the meaning of its values.
fn meaning(field: &Field) -> Vec<(&String, &String)> {
    let mut meaning: Vec<_> = field.metadata().iter().filter(|(key, _)| *key != MASK_KEY).collect();
    meaning.sort_unstable();
    meaning
}

/// A type with what its metadata says, for messages.
fn shown(field: &Field) -> String {
    let shape = field.metadata().get(stoker_columns::EXTENSION_METADATA_KEY);
    format!("{}{}", field.data_type(), shape.map(|shape| format!(" {shape}")).unwrap_or_default())
}

/// Refuses NULL in a column without NULL, and values that are not of the column's kind.
fn refuse_misfits(attempted: &str, field: &Field, addrs: &[u64], values: &RecordBatch) -> Result<()> {
    let at = |row: usize, reason: String| {
        let row = addrs.get(row).copied().unwrap_or_default();
        Err(Error::refused(format!("{attempted}: the row whose row_id is {row}"), reason))
    };
    let own = Schema::new(vec![field.clone()]);
    if let Some(wrong) = wrong_value(values, &own) {
        let reason = format!("expected {}, found {}", wrong.mismatch.expected, wrong.mismatch.found);
        return match wrong.mismatch.row {
            Some(row) => at(row, reason),
            None => Err(Error::refused(attempted, reason)),
        };
    }
    let has_none = !field.is_nullable() || kind_of(field).storage(field).refuses_nulls;
    let column = values.column(0);
    if has_none && column.null_count() > 0 {
        let row = (0..column.len()).find(|row| column.is_null(*row)).unwrap_or(0);
        return at(row, "its value is NULL, and the column has no NULL: use where to leave rows out".into());
    }
    Ok(())
}
