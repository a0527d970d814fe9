//! Functions that return the values of parameters.
//!
//! `"$1"()` is the first parameter, `"$1"(i)` is the element i of a list, and `"$1[]"()` is a vector as a list. Column
//! names and messages show all of them as `$1`, which is what users wrote.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::{Result as DfResult, ScalarValue, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::prelude::Expr;
use stoker_types::ParamValue;

use super::value;

/// Returns the SQL of a parameter.
pub(super) fn whole(index: usize) -> String {
    format!("\"${}\"()", index + 1)
}

/// Returns the SQL of a vector parameter as a list.
pub(super) fn list(index: usize) -> String {
    format!("\"${}[]\"()", index + 1)
}

/// Returns the SQL of one element of a list parameter.
pub(super) fn element(index: usize, element: usize) -> String {
    format!("\"${}\"({element})", index + 1)
}

/// Whether a function's name, as it stands in SQL, is that of a parameter.
pub(crate) fn is_parameter(name: &str) -> bool {
    name.starts_with("\"$")
}

/// Returns the functions for the parameters of a query.
pub(crate) fn functions(params: &[ParamValue]) -> DfResult<Vec<ScalarUDF>> {
    let mut functions = Vec::new();
    for (index, param) in params.iter().enumerate() {
        let Some(whole) = value::whole(param)? else { continue };
        let shown = format!("${}", index + 1);
        let elements = match value::elements(param) {
            Some(elements) => {
                (0..elements.len()).map(|row| ScalarValue::try_from_array(&elements, row)).collect::<DfResult<_>>()?
            }
            None => Vec::new(),
        };
        if let (ParamValue::Vector(_), Some(elements)) = (param, value::elements(param)) {
            let list = value::list(elements)?;
            functions.push(Param::new(format!("{shown}[]"), shown.clone(), list, Vec::new()).into());
        }
        functions.push(Param::new(shown.clone(), shown, whole, elements).into());
    }
    Ok(functions)
}

/// A function that returns one parameter, or one element of it.
#[derive(Debug, PartialEq, Eq)]
struct Param {
    name: String,
    shown: String,
    whole: ScalarValue,
    elements: Vec<ScalarValue>,
    signature: Signature,
}

impl Hash for Param {
    /// Hashes only the name, which differs between the functions of a query; equal functions have equal names.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Param {
    fn new(name: String, shown: String, whole: ScalarValue, elements: Vec<ScalarValue>) -> Self {
        let forms = vec![TypeSignature::Nullary, TypeSignature::Exact(vec![DataType::Int64])];
        Self { name, shown, whole, elements, signature: Signature::one_of(forms, Volatility::Immutable) }
    }

    fn element(&self, index: Option<&ScalarValue>) -> DfResult<&ScalarValue> {
        let found = match index {
            Some(ScalarValue::Int64(Some(index))) => {
                usize::try_from(*index).ok().and_then(|index| self.elements.get(index))
            }
            _ => None,
        };
        match found {
            Some(element) => Ok(element),
            None => plan_err!("parameter {} has no such element", self.shown),
        }
    }
}

impl ScalarUDFImpl for Param {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn schema_name(&self, args: &[Expr]) -> DfResult<String> {
        match args.first() {
            Some(element) => Ok(format!("{}[{element}]", self.shown)),
            None => Ok(self.shown.clone()),
        }
    }

    fn return_type(&self, _arg_types: &[DataType]) -> DfResult<DataType> {
        Ok(self.whole.data_type())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let value = match args.scalar_arguments {
            [] => &self.whole,
            [index, ..] => self.element(*index)?,
        };
        Ok(Arc::new(Field::new(&self.shown, value.data_type(), value.is_null())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        match args.args.first() {
            None => Ok(ColumnarValue::Scalar(self.whole.clone())),
            Some(ColumnarValue::Scalar(index)) => Ok(ColumnarValue::Scalar(self.element(Some(index))?.clone())),
            Some(ColumnarValue::Array(_)) => plan_err!("the element of parameter {} is not a literal", self.shown),
        }
    }
}
