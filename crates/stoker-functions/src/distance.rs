//! The functions `l2_distance`, `cosine_distance`, `cosine_similarity`, `dot_product` and `negative_inner_product` of
//! two vectors.
//!
//! The arguments are two FixedSizeLists or Lists of numbers of equal length, columns or literals. The result is
//! Float32, and NULL where a vector or one of its elements is NULL. Everything is computed in `f32`, in eight
//! independent sums that the compiler keeps in one vector register.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array};
use arrow_schema::DataType;
use datafusion::common::{Result as DfResult, ScalarValue, exec_err, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

use crate::documented::documented;
use crate::vectors::{Dimensions, Vectors, dimensions, shown};

/// The number of independent sums: eight `f32` fill a 256-bit register.
const NUM_LANES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    L2,
    Cosine,
    CosineSimilarity,
    Dot,
    NegativeInner,
}

/// One of the distance functions.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Distance {
    kind: Kind,
    documentation: Documentation,
    signature: Signature,
}

impl Distance {
    /// The Euclidean distance, with the square root. (The `_distance` of a search is computed by Lance, and is its
    /// square.)
    pub(crate) fn l2() -> Self {
        let description = "The Euclidean distance between two vectors, with the square root; also: <->";
        Self::new(Kind::L2, documented("l2_distance(vector, vector)", description))
    }

    /// One minus the cosine of the angle; NULL where a vector has length zero.
    pub(crate) fn cosine() -> Self {
        let description = "One minus the cosine of the angle between two vectors; also: <=>";
        Self::new(Kind::Cosine, documented("cosine_distance(vector, vector)", description))
    }

    /// The cosine of the angle, which is one minus the cosine distance; NULL where a vector has length zero.
    pub(crate) fn cosine_similarity() -> Self {
        let description = "The cosine of the angle between two vectors";
        Self::new(Kind::CosineSimilarity, documented("cosine_similarity(vector, vector)", description))
    }

    /// The sum of the products of the elements.
    pub(crate) fn dot() -> Self {
        let description = "The sum of the products of the values of two vectors";
        Self::new(Kind::Dot, documented("dot_product(vector, vector)", description))
    }

    /// The negated sum of the products of the elements, so that the nearest vectors have the smallest values.
    pub(crate) fn negative_inner() -> Self {
        let description = "Minus the dot product of two vectors; also: <#>";
        Self::new(Kind::NegativeInner, documented("negative_inner_product(vector, vector)", description))
    }

    fn new(kind: Kind, documentation: Documentation) -> Self {
        Self { kind, documentation, signature: Signature::any(2, Volatility::Immutable) }
    }

    fn apply(&self, left: &[f32], right: &[f32]) -> Option<f32> {
        let distance = match self.kind {
            Kind::L2 => sum(left, right, |a, b| (a - b) * (a - b)).sqrt(),
            Kind::Dot => sum(left, right, |a, b| a * b),
            Kind::NegativeInner => -sum(left, right, |a, b| a * b),
            Kind::Cosine => 1.0 - cosine(left, right)?,
            Kind::CosineSimilarity => cosine(left, right)?,
        };
        // Sorts compare bits: only a NaN without a sign sorts after all numbers.
        Some(if distance.is_nan() { f32::NAN } else { distance })
    }
}

/// Whether a function compares two vectors of the same type.
pub fn compares_vectors(name: &str) -> bool {
    ["l2_distance", "cosine_distance", "cosine_similarity", "dot_product", "negative_inner_product"].contains(&name)
}

/// Returns the cosine of the angle, or `None` if a vector has length zero.
fn cosine(left: &[f32], right: &[f32]) -> Option<f32> {
    let norms = sum(left, left, |a, b| a * b).sqrt() * sum(right, right, |a, b| a * b).sqrt();
    (norms != 0.0).then(|| sum(left, right, |a, b| a * b) / norms)
}

/// Returns the sum of `term` over pairs of elements.
#[inline]
fn sum(left: &[f32], right: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0f32; NUM_LANES];
    let (left_chunks, right_chunks) = (left.chunks_exact(NUM_LANES), right.chunks_exact(NUM_LANES));
    let (left_rest, right_rest) = (left_chunks.remainder(), right_chunks.remainder());
    for (left, right) in left_chunks.zip(right_chunks) {
        for lane in 0..NUM_LANES {
            lanes[lane] += term(left[lane], right[lane]);
        }
    }
    let rest: f32 = left_rest.iter().zip(right_rest).map(|(a, b)| term(*a, *b)).sum();
    lanes.iter().sum::<f32>() + rest
}

impl ScalarUDFImpl for Distance {
    fn name(&self) -> &str {
        match self.kind {
            Kind::L2 => "l2_distance",
            Kind::Cosine => "cosine_distance",
            Kind::CosineSimilarity => "cosine_similarity",
            Kind::Dot => "dot_product",
            Kind::NegativeInner => "negative_inner_product",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> DfResult<DataType> {
        let [left, right] = arg_types else { return plan_err!("{} needs two vectors", self.name()) };
        match (dimensions(left), dimensions(right)) {
            (Dimensions::NotVector, _) => plan_err!("{}: the first argument is {left}, not a vector", self.name()),
            (_, Dimensions::NotVector) => plan_err!("{}: the second argument is {right}, not a vector", self.name()),
            (left @ Dimensions::Fixed(a), right @ Dimensions::Fixed(b)) if a != b => {
                plan_err!("{}: the vectors have {} and {} dimensions", self.name(), shown(&left), shown(&right))
            }
            _ => Ok(DataType::Float32),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let [left, right] = args.args.as_slice() else {
            return internal_err!("{} was called with {} arguments", self.name(), args.args.len());
        };
        let both_scalar = matches!((left, right), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
        let left = Vectors::try_new(&one_row_or_all(left)?)?;
        let right = Vectors::try_new(&one_row_or_all(right)?)?;
        let num_rows = if both_scalar { 1 } else { args.number_rows };
        let row_of = |vectors: &Vectors, row: usize| if vectors.num_rows() == 1 { 0 } else { row };
        let mut distances = Vec::with_capacity(num_rows);
        for row in 0..num_rows {
            let pair = (left.row(row_of(&left, row)), right.row(row_of(&right, row)));
            distances.push(match pair {
                (Some(left), Some(right)) if left.len() != right.len() => {
                    return exec_err!(
                        "{}: the vectors have {} and {} dimensions",
                        self.name(),
                        left.len(),
                        right.len()
                    );
                }
                (Some(left), Some(right)) => self.apply(left, right),
                _ => None,
            });
        }
        if both_scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::Float32(distances.first().copied().flatten())));
        }
        Ok(ColumnarValue::Array(Arc::new(Float32Array::from(distances))))
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}

/// Returns the rows of an argument. A literal is one row, so that it is converted once.
fn one_row_or_all(value: &ColumnarValue) -> DfResult<ArrayRef> {
    match value {
        ColumnarValue::Array(array) => Ok(array.clone()),
        ColumnarValue::Scalar(scalar) => scalar.to_array(),
    }
}
