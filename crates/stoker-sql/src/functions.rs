//! Scalar functions over vectors and tensors.

mod distance;
mod tensor_mean;
mod tensor_shape;
mod vectors;

use datafusion::logical_expr::ScalarUDF;

/// All functions that this crate adds to DataFusion's.
pub(crate) fn all() -> Vec<ScalarUDF> {
    vec![
        ScalarUDF::from(distance::Distance::l2()),
        ScalarUDF::from(distance::Distance::cosine()),
        ScalarUDF::from(distance::Distance::dot()),
        ScalarUDF::from(tensor_mean::TensorMean::new()),
        ScalarUDF::from(tensor_shape::TensorShape::new()),
    ]
}
