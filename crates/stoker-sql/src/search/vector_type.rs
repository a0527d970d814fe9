//! The type of a column of vectors, and query vectors of this type.

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{ArrayRef, Float64Array};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType};
use datafusion::logical_expr::LogicalPlan;
use stoker_columns::SmallFloat;
use stoker_lake::Metric;

/// The type of the vectors of a column.
#[derive(Clone, Debug)]
pub(crate) struct VectorType {
    /// `Float16`, `Float32`, `Float64` or `UInt8`.
    element: DataType,
    dimensions: usize,
}

impl VectorType {
    /// Returns the type of the vectors of a column, or why the column cannot be searched.
    pub(super) fn of(column: &DataType) -> Result<Self, String> {
        let DataType::FixedSizeList(item, length) = column else {
            return Err(format!("it is {column}, not a vector"));
        };
        match item.data_type() {
            element @ (DataType::Float16 | DataType::Float32 | DataType::Float64 | DataType::UInt8) => {
                Ok(Self { element: element.clone(), dimensions: usize::try_from(*length).unwrap_or_default() })
            }
            other => Err(format!("vectors of {other} cannot be searched")),
        }
    }

    /// Some vector of this type, which has a distance by every metric.
    pub(super) fn any(&self) -> Vec<f64> {
        vec![1.0; self.dimensions]
    }

    /// Converts a query vector to the elements of this type, or returns why it has no distances to such vectors.
    pub(super) fn query(&self, query: &[f64], metric: Metric) -> Result<ArrayRef, String> {
        self.check_dimensions(query.len())?;
        if let Some(value) = query.iter().find(|value| !value.is_finite()) {
            return Err(format!("the query holds {value}"));
        }
        let text = |source: ArrowError| source.to_string();
        let values = cast(&Float64Array::from(query.to_vec()), &self.element).map_err(text)?;
        let kept = cast(&values, &DataType::Float64).map_err(text)?;
        let kept = kept.as_primitive::<Float64Type>();
        let lost = kept.iter().zip(query).find(|(kept, _)| !kept.is_some_and(f64::is_finite));
        if let Some((_, value)) = lost {
            return Err(format!("the query holds {value}, which {} cannot hold", self.element));
        }
        #[expect(clippy::cast_possible_truncation, reason = "Lance computes norms in f32")]
        let norm = kept.values().iter().map(|value| (*value as f32) * (*value as f32)).sum::<f32>();
        match metric {
            Metric::Cosine if norm == 0.0 => {
                Err("the query has length zero, so that it has no cosine distance; use metric => 'l2'".to_string())
            }
            Metric::Cosine if norm.is_infinite() => {
                Err("the query is too long for a cosine distance; divide it by its length".to_string())
            }
            _ => Ok(values),
        }
    }

    /// Checks as far as the columns of a subquery tell that it gives a query vector; returns why it does not.
    pub(super) fn check_subquery(&self, plan: &LogicalPlan) -> Result<(), String> {
        let [field] = &plan.schema().fields()[..] else {
            let num_columns = plan.schema().fields().len();
            return Err(format!("the subquery of the query has {num_columns} columns; it must have one"));
        };
        if let Some(float) = SmallFloat::of(field) {
            let name = float.name();
            return Err(format!("the subquery of the query gives {name} numbers; pass the vector as a parameter"));
        }
        match field.data_type() {
            DataType::FixedSizeList(item, length) if item.data_type().is_numeric() => {
                self.check_dimensions(usize::try_from(*length).unwrap_or_default())
            }
            DataType::List(item) | DataType::LargeList(item)
                if item.data_type().is_numeric() || item.data_type().is_null() =>
            {
                Ok(())
            }
            // NULL, or a parameter without a value.
            DataType::Null => Ok(()),
            other => Err(format!("the subquery of the query gives {other}; it must give a list of numbers")),
        }
    }

    fn check_dimensions(&self, given: usize) -> Result<(), String> {
        match given == self.dimensions {
            true => Ok(()),
            false => Err(format!("it has {} dimensions, the query has {given}", self.dimensions)),
        }
    }
}
