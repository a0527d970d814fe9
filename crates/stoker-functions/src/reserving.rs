//! Wraps a function whose result can outgrow its arguments, and reserves memory for its result.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef};
use arrow_schema::{DataType, FieldRef};
use arrow_select::concat::concat;
use datafusion::common::Result as DfResult;
use datafusion::common::tree_node::TreeNode as _;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use datafusion::prelude::Expr;

use crate::cost::{Call, Cost};
use crate::held::held;
use crate::reserve_results::reserving;
use crate::{Activity, Error, beside_others};

/// The most bytes that are reserved for one call of the inner function, unless one row takes more.
const SLICE_BYTES: u64 = 8 << 20;
/// The most steps of work between two checks for cancellation, unless one row takes more: about 50 ms.
const SLICE_WORK: u64 = 1 << 25;
/// The steps of work from which a call lets other tasks of its thread continue on other threads: a few milliseconds.
const LONG_WORK: u64 = 1 << 20;
/// The most steps of work for one row: a few seconds.
const ROW_WORK_MAX: u64 = 1 << 30;
/// The bytes of a result from which the result holds its reservation.
const HELD_BYTES_MIN: usize = 64 << 10;
/// The bytes of a constant from which it counts towards the limit on constants.
const CONSTANT_BYTES_MIN: usize = 1 << 10;
/// The most bytes of a pattern as it is written.
const PATTERN_BYTES_MAX: usize = 4_096;

/// A function that calls the inner function for some rows at a time, after reserving an upper bound on the result. A
/// result of at least [`HELD_BYTES_MIN`] then holds a reservation for its actual bytes.
pub(crate) struct Reserving {
    inner: Arc<ScalarUDF>,
    cost: fn(&Call) -> Cost,
    activity: Arc<Activity>,
}

impl Reserving {
    pub(crate) fn new(inner: Arc<ScalarUDF>, cost: fn(&Call) -> Cost, activity: Arc<Activity>) -> Self {
        Self { inner, cost, activity }
    }

    fn exhausted<T>(&self, what: impl fmt::Display) -> DfResult<T> {
        Err(Error::exhausted(format!("function {} {what}", self.name())).into())
    }

    fn cost_of(&self, args: &ScalarFunctionArgs, num_rows: usize) -> Cost {
        let result = args.return_field.data_type();
        (self.cost)(&Call { args: &args.args, num_rows: num_rows as u64, result })
    }

    /// Checks the cost of one call and reserves its bytes. Returns the number of reserved bytes.
    fn admit(&self, cost: Cost, reservation: &MemoryReservation) -> DfResult<usize> {
        if cost.work > ROW_WORK_MAX {
            return self.exhausted(format!(
                "takes up to {} steps for a row, the limit is {ROW_WORK_MAX}: its texts are too long",
                cost.work
            ));
        }
        let bytes = stoker_types::to_usize(cost.bytes);
        // The offsets of texts and lists have 31 bits.
        if bytes > i32::MAX as usize {
            return self.exhausted(format!("needs up to {bytes} bytes for a result, the limit is {} bytes", i32::MAX));
        }
        match reservation.try_grow(bytes) {
            Ok(()) => Ok(bytes),
            Err(DataFusionError::ResourcesExhausted(reason)) => {
                self.exhausted(format!("needs up to {bytes} bytes for a result: {reason}"))
            }
            Err(other) => Err(other),
        }
    }

    fn constant(&self, args: ScalarFunctionArgs, reservation: &MemoryReservation) -> DfResult<ColumnarValue> {
        self.admit(self.cost_of(&args, 1), reservation)?;
        let value = self.inner.invoke_with_args(args)?;
        if let ColumnarValue::Scalar(value) = &value {
            let bytes = value.size();
            if bytes > CONSTANT_BYTES_MIN {
                self.activity.add_constant(self.name(), bytes as u64)?;
            }
        }
        Ok(value)
    }

    /// Computes a range of rows, halved until the cost of each piece is below the limits, and appends the pieces.
    fn rows(
        &self,
        args: &ScalarFunctionArgs,
        rows: Range<usize>,
        reservation: &MemoryReservation,
        pieces: &mut Vec<ArrayRef>,
    ) -> DfResult<()> {
        self.activity.check()?;
        let some = slice(args, &rows);
        let cost = self.cost_of(&some, rows.len());
        if rows.len() > 1 && (cost.bytes > SLICE_BYTES || cost.work > SLICE_WORK) {
            let middle = rows.start + rows.len() / 2;
            self.rows(args, rows.start..middle, reservation, pieces)?;
            return self.rows(args, middle..rows.end, reservation, pieces);
        }
        let reserved = self.admit(cost, reservation)?;
        let compute = || self.inner.invoke_with_args(some);
        let piece = if cost.work > LONG_WORK { beside_others(compute) } else { compute() };
        let mut piece = piece?.into_array(rows.len())?;
        // A buffer that grew while it was written has spare capacity, which the reservation does not include.
        piece.shrink_to_fit();
        reservation.shrink(reserved.saturating_sub(result_bytes(&piece)));
        pieces.push(piece);
        Ok(())
    }

    fn joined(&self, pieces: &[ArrayRef], reservation: &MemoryReservation) -> DfResult<ArrayRef> {
        let bytes = pieces.iter().map(|piece| result_bytes(piece) as u64).sum();
        self.admit(Cost { bytes, work: 0 }, reservation)?;
        let pieces: Vec<&dyn arrow_array::Array> = pieces.iter().map(AsRef::as_ref).collect();
        Ok(concat(&pieces)?)
    }

    /// Checks the length of a pattern. The regex library limits the size of the compiled pattern.
    fn check_pattern(&self, args: &[ColumnarValue]) -> DfResult<()> {
        let is_pattern = self.name().starts_with("regexp_");
        match args.get(1) {
            Some(ColumnarValue::Scalar(pattern)) if is_pattern => match pattern.try_as_str().flatten() {
                Some(pattern) if pattern.len() > PATTERN_BYTES_MAX => self.exhausted(format!(
                    "has a pattern of {} bytes, the limit is {PATTERN_BYTES_MAX} bytes",
                    pattern.len()
                )),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

/// Returns the bytes of a result. For string views this includes their texts, which may lie in buffers of the
/// arguments.
fn result_bytes(array: &ArrayRef) -> usize {
    let bytes = array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size());
    match array.data_type() {
        DataType::Utf8View => bytes + array.as_string_view().lengths().map(|length| length as usize).sum::<usize>(),
        _ => bytes,
    }
}

fn slice(args: &ScalarFunctionArgs, rows: &Range<usize>) -> ScalarFunctionArgs {
    let some = args.args.iter().map(|arg| match arg {
        ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(rows.start, rows.len())),
        scalar @ ColumnarValue::Scalar(_) => scalar.clone(),
    });
    ScalarFunctionArgs {
        args: some.collect(),
        arg_fields: args.arg_fields.clone(),
        number_rows: rows.len(),
        return_field: args.return_field.clone(),
        config_options: args.config_options.clone(),
    }
}

impl ScalarUDFImpl for Reserving {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> DfResult<String> {
        self.inner.schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> DfResult<DataType> {
        self.inner.return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        self.activity.check()?;
        self.check_pattern(&args.args)?;
        let reservation = MemoryConsumer::new(self.name()).register(self.activity.pool());
        if args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_))) {
            return self.constant(args, &reservation);
        }
        let mut pieces = Vec::new();
        self.rows(&args, 0..args.number_rows, &reservation, &mut pieces)?;
        let array = match pieces.as_slice() {
            [piece] => piece.clone(),
            pieces => self.joined(pieces, &reservation)?,
        };
        drop(pieces);
        let bytes = result_bytes(&array);
        if bytes < HELD_BYTES_MIN {
            return Ok(ColumnarValue::Array(array));
        }
        reservation.try_resize(bytes)?;
        held(&array, reservation).map(ColumnarValue::Array)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> DfResult<ExprSimplifyResult> {
        Ok(match self.inner.inner().simplify(args, info)? {
            ExprSimplifyResult::Simplified(expr) => {
                let reserved = expr.transform_up(|expr| Ok(reserving(expr, &self.activity)))?;
                ExprSimplifyResult::Simplified(reserved.data)
            }
            original @ ExprSimplifyResult::Original(_) => original,
        })
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn conditional_arguments<'a>(&self, args: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.inner().conditional_arguments(args)
    }

    fn evaluate_bounds(&self, input: &[&Interval]) -> DfResult<Interval> {
        self.inner.evaluate_bounds(input)
    }

    fn propagate_constraints(&self, interval: &Interval, inputs: &[&Interval]) -> DfResult<Option<Vec<Interval>>> {
        self.inner.inner().propagate_constraints(interval, inputs)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> DfResult<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> DfResult<bool> {
        self.inner.preserves_lex_ordering(inputs)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> DfResult<Vec<DataType>> {
        self.inner.coerce_types(arg_types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

impl fmt::Debug for Reserving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reserving").field(&self.inner).finish()
    }
}

impl PartialEq for Reserving {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl Eq for Reserving {}

impl Hash for Reserving {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}
