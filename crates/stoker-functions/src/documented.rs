//! How `functions()` and `SHOW FUNCTIONS` describe the functions of this crate.

use datafusion::logical_expr::{DocSection, Documentation};

/// Returns the documentation of a function, such as `tensor_mean(tensor)`.
pub(crate) fn documented(syntax: &str, description: &str) -> Documentation {
    Documentation::builder(DocSection::default(), description, syntax).build()
}
