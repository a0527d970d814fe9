//! SQL functions: DataFusion's functions that a query may call, the functions of this crate, and limits on the memory
//! of their results.
//!
//! ```text
//! allowed ──► each function's rule for the size of its results
//! cost    ──► an upper bound on the result of a call, from the call's arguments
//! ReserveResults (analyzer rule) ──► Reserving (wraps a function whose result can outgrow its arguments) ──► held
//! ```

mod allowed;
mod concatenate;
mod cost;
mod distance;
mod held;
mod octet_length;
mod reserve_results;
mod reserving;
mod tensor_mean;
mod tensor_shape;
mod vectors;

pub(crate) use allowed::{keep_allowed, refused};
pub(crate) use distance::Distance;
pub(crate) use reserve_results::ReserveResults;
pub(crate) use vectors::is_vector;

use datafusion::logical_expr::ScalarUDF;

/// Returns all functions that this crate adds to DataFusion's or that replace one of DataFusion's.
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

#[cfg(test)]
mod tests;
