//! `vector_avg(vector)`: the element-wise mean of vectors over rows.
//!
//! The argument is a FixedSizeList of numbers: a vector or a tensor of any shape. The result is a FixedSizeList of the
//! same length, of Float64 if the elements are Float64, else of Float32. Rows that are NULL or have a NULL element do
//! not count; the result is NULL if no row counts. Sums are computed in `f64`. The state of a group is its sums, as a
//! FixedSizeList of Float64, and the number of its rows.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, FixedSizeListArray, Float64Array, UInt64Array};
use arrow_buffer::NullBuffer;
use arrow_cast::cast;
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::{Result as DfResult, ScalarValue, internal_err, not_impl_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use stoker_columns::SmallFloat;

use crate::documented::documented;
use crate::vectors::to_f64;

/// The elements that are converted to `f64` at once, unless one vector has more: 512 KiB.
const ELEMENTS_AT_ONCE: usize = 1 << 16;

/// The aggregate.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct VectorAvg {
    documentation: Documentation,
    signature: Signature,
}

impl VectorAvg {
    pub(crate) fn new() -> Self {
        let description = "The element-wise mean of vectors; rows that are NULL or have a NULL element do not count";
        Self {
            documentation: documented("vector_avg(vector)", description),
            signature: Signature::any(1, Volatility::Immutable),
        }
    }
}

impl AggregateUDFImpl for VectorAvg {
    fn name(&self) -> &str {
        "vector_avg"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> DfResult<DataType> {
        match arg_types {
            [DataType::FixedSizeList(item, length)] if item.data_type().is_numeric() => {
                let element =
                    if item.data_type() == &DataType::Float64 { DataType::Float64 } else { DataType::Float32 };
                Ok(DataType::FixedSizeList(elements(element), *length))
            }
            [list @ (DataType::List(_) | DataType::LargeList(_))] => {
                plan_err!("vector_avg: {list} is a list of any length; cast it to a vector, as in list::FLOAT[4]")
            }
            [other] => plan_err!("vector_avg: {other} is not a vector"),
            _ => plan_err!("vector_avg needs a vector"),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> DfResult<Vec<FieldRef>> {
        let DataType::FixedSizeList(_, length) = args.return_type() else {
            return internal_err!("vector_avg was planned as {}", args.return_type());
        };
        let sums = DataType::FixedSizeList(elements(DataType::Float64), *length);
        Ok(vec![
            Arc::new(Field::new(format_state_name(args.name, "sums"), sums, true)),
            Arc::new(Field::new(format_state_name(args.name, "count"), DataType::UInt64, true)),
        ])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        Ok(Box::new(OneGroup::new(VectorSums::try_new(&args)?)))
    }

    fn groups_accumulator_supported(&self, _args: AccumulatorArgs) -> bool {
        true
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> DfResult<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(VectorSums::try_new(&args)?))
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}

fn elements(element: DataType) -> FieldRef {
    Arc::new(Field::new_list_field(element, true))
}

/// The sums of the vectors of each group.
#[derive(Debug)]
pub(crate) struct VectorSums {
    /// The elements of the result.
    item: FieldRef,
    /// The number of elements of a vector, as Arrow counts them.
    list_length: i32,
    /// The same number.
    length: usize,
    /// The float that elements are, if Arrow lacks it.
    float: Option<SmallFloat>,
    /// The sums of group g are at `g * length..(g + 1) * length`.
    sums: Vec<f64>,
    /// The number of rows of each group.
    counts: Vec<u64>,
}

impl VectorSums {
    fn try_new(args: &AccumulatorArgs) -> DfResult<Self> {
        if args.is_distinct {
            return not_impl_err!("vector_avg(DISTINCT …) is not available: vectors are not compared");
        }
        let DataType::FixedSizeList(item, length) = args.return_type() else {
            return internal_err!("vector_avg was planned as {}", args.return_type());
        };
        let float = args.expr_fields.first().and_then(|field| SmallFloat::of(field));
        Ok(Self::new(item.clone(), *length, float))
    }

    /// Creates the state for results of `list_length` elements of the type of `item`, without groups.
    pub(crate) fn new(item: FieldRef, list_length: i32, float: Option<SmallFloat>) -> Self {
        let length = usize::try_from(list_length).unwrap_or_default();
        Self { item, list_length, length, float, sums: Vec::new(), counts: Vec::new() }
    }

    /// Adds groups without rows, so that there are at least `num_groups`.
    fn grow(&mut self, num_groups: usize) {
        if num_groups > self.counts.len() {
            self.counts.resize(num_groups, 0);
            self.sums.resize(num_groups * self.length, 0.0);
        }
    }

    /// Adds vectors, each to the group that `group_of` returns for its row.
    fn add(&mut self, values: &[ArrayRef], group_of: impl Fn(usize) -> Option<usize>) -> DfResult<()> {
        let Some(vectors) = values.first().and_then(|values| values.as_fixed_size_list_opt()) else {
            return internal_err!("vector_avg was called without vectors");
        };
        let rows_at_once = (ELEMENTS_AT_ONCE / self.length.max(1)).max(1);
        for first in (0..vectors.len()).step_by(rows_at_once) {
            let rows = vectors.slice(first, rows_at_once.min(vectors.len() - first));
            let elements = to_f64(&elements_of(&rows, self.length), self.float)?;
            let nulls = elements.nulls().filter(|nulls| nulls.null_count() > 0);
            for row in 0..rows.len() {
                let Some(group) = group_of(first + row).filter(|_| rows.is_valid(row)) else { continue };
                let start = row * self.length;
                if nulls.is_some_and(|nulls| nulls.slice(start, self.length).null_count() > 0) {
                    continue;
                }
                self.add_to(group, &elements.values()[start..start + self.length], 1);
            }
        }
        Ok(())
    }

    /// Adds the states of other accumulators.
    fn merge(&mut self, states: &[ArrayRef], group_of: impl Fn(usize) -> Option<usize>) -> DfResult<()> {
        let [sums, counts] = states else {
            return internal_err!("vector_avg has two columns of state, not {}", states.len());
        };
        let (Some(sums), Some(counts)) = (sums.as_fixed_size_list_opt(), counts.as_primitive_opt::<UInt64Type>())
        else {
            return internal_err!("the state of vector_avg is {} and {}", sums.data_type(), counts.data_type());
        };
        let sums = to_f64(&elements_of(sums, self.length), None)?;
        for (row, count) in counts.values().iter().enumerate() {
            if let Some(group) = group_of(row) {
                let start = row * self.length;
                self.add_to(group, &sums.values()[start..start + self.length], *count);
            }
        }
        Ok(())
    }

    fn add_to(&mut self, group: usize, elements: &[f64], count: u64) {
        let start = group * self.length;
        for (sum, element) in self.sums[start..start + self.length].iter_mut().zip(elements) {
            *sum += element;
        }
        self.counts[group] += count;
    }

    /// Removes the sums and the counts of some groups.
    fn take(&mut self, emit_to: EmitTo) -> (Vec<f64>, Vec<u64>) {
        let elements = match emit_to {
            EmitTo::All => EmitTo::All,
            EmitTo::First(num_groups) => EmitTo::First(num_groups * self.length),
        };
        (elements.take_needed(&mut self.sums), emit_to.take_needed(&mut self.counts))
    }

    /// Returns the mean of each group.
    fn means(&self, mut sums: Vec<f64>, counts: &[u64]) -> DfResult<FixedSizeListArray> {
        for (sums, count) in sums.chunks_exact_mut(self.length.max(1)).zip(counts) {
            for sum in sums {
                *sum /= (*count).max(1) as f64;
            }
        }
        let means = cast(&Float64Array::from(sums), self.item.data_type())?;
        let nulls: NullBuffer = counts.iter().map(|count| *count > 0).collect();
        let (item, num_groups) = (self.item.clone(), counts.len());
        Ok(FixedSizeListArray::try_new_with_length(item, self.list_length, means, Some(nulls), num_groups)?)
    }

    /// Returns the sums of `num_groups` groups as a column of state.
    fn sums_state(&self, sums: Vec<f64>, num_groups: usize) -> DfResult<FixedSizeListArray> {
        let (item, sums) = (elements(DataType::Float64), Arc::new(Float64Array::from(sums)));
        Ok(FixedSizeListArray::try_new_with_length(item, self.list_length, sums, None, num_groups)?)
    }
}

/// Returns the elements of all rows of an array whose vectors have `length` elements.
fn elements_of(vectors: &FixedSizeListArray, length: usize) -> ArrayRef {
    let first = usize::try_from(vectors.value_offset(0)).unwrap_or_default();
    vectors.values().slice(first, vectors.len() * length)
}

/// Returns the group of a row that a filter selects.
fn selected(row: usize, group_indices: &[usize], filter: Option<&BooleanArray>) -> Option<usize> {
    let is_selected = filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
    if is_selected { group_indices.get(row).copied() } else { None }
}

impl GroupsAccumulator for VectorSums {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> DfResult<()> {
        self.grow(total_num_groups);
        self.add(values, |row| selected(row, group_indices, opt_filter))
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> DfResult<ArrayRef> {
        let (sums, counts) = self.take(emit_to);
        Ok(Arc::new(self.means(sums, &counts)?))
    }

    fn state(&mut self, emit_to: EmitTo) -> DfResult<Vec<ArrayRef>> {
        let (sums, counts) = self.take(emit_to);
        Ok(vec![Arc::new(self.sums_state(sums, counts.len())?), Arc::new(UInt64Array::from(counts))])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> DfResult<()> {
        self.grow(total_num_groups);
        self.merge(values, |row| selected(row, group_indices, opt_filter))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.sums.capacity() * size_of::<f64>() + self.counts.capacity() * size_of::<u64>()
    }
}

/// The sums of all rows, as one group.
#[derive(Debug)]
pub(crate) struct OneGroup(VectorSums);

impl OneGroup {
    pub(crate) fn new(mut sums: VectorSums) -> Self {
        sums.grow(1);
        Self(sums)
    }
}

impl Accumulator for OneGroup {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        self.0.add(values, |_| Some(0))
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        let mean = self.0.means(self.0.sums.clone(), &self.0.counts)?;
        Ok(ScalarValue::FixedSizeList(Arc::new(mean)))
    }

    fn size(&self) -> usize {
        GroupsAccumulator::size(&self.0)
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        let sums = self.0.sums_state(self.0.sums.clone(), 1)?;
        let count = self.0.counts.first().copied();
        Ok(vec![ScalarValue::FixedSizeList(Arc::new(sums)), ScalarValue::UInt64(count)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        self.0.merge(states, |_| Some(0))
    }
}
