//! Scalar functions over vectors, tensors and bytes.

mod distance;
mod octet_length;
mod tensor_mean;
mod tensor_shape;
mod vectors;

pub(crate) use distance::Distance;
pub(crate) use vectors::is_vector;

use datafusion::logical_expr::ScalarUDF;

/// All functions that this crate adds to DataFusion's, or puts in place of them.
pub(crate) fn all() -> Vec<ScalarUDF> {
    vec![
        ScalarUDF::from(Distance::l2()),
        ScalarUDF::from(Distance::cosine()),
        ScalarUDF::from(Distance::dot()),
        ScalarUDF::from(Distance::negative_inner()),
        ScalarUDF::from(octet_length::OctetLength::new()),
        ScalarUDF::from(tensor_mean::TensorMean::new()),
        ScalarUDF::from(tensor_shape::TensorShape::new()),
    ]
}
