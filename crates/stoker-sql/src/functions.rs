//! Functions: which DataFusion's a query may call, those of this crate, and what their results may take.
//!
//! ```text
//! allowed ──► a rule for the size of each result
//! cost    ──► what a call takes at most, from its arguments
//! ReserveResults (a rule of the analyzer) ──► Reserving (a function around one that can outgrow its arguments) ──► held
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

#[cfg(test)]
mod tests;
