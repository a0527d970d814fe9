//! NumPy's types of scalars.

use arrow_schema::{DataType, Field, TimeUnit};

use crate::numpy::number_name;
use crate::{Nulls, NumpyShape};

pub(super) fn shape(field: &Field) -> NumpyShape {
    let values = |dtype: &str, nulls| NumpyShape::values(field, dtype, nulls);
    match field.data_type() {
        DataType::Boolean => values("bool", Nulls::Zero),
        DataType::Timestamp(unit, _) => values(&format!("datetime64[{}]", unit_name(unit)), Nulls::NaT),
        DataType::Duration(unit) => values(&format!("timedelta64[{}]", unit_name(unit)), Nulls::NaT),
        DataType::Date32 => values("datetime64[D]", Nulls::NaT),
        DataType::Date64 => values("datetime64[ms]", Nulls::NaT),
        other => match number_name(other) {
            Some(name) => values(name, if other.is_floating() { Nulls::NaN } else { Nulls::Zero }),
            None => NumpyShape::objects(field),
        },
    }
}

/// Returns NumPy's name of a unit of time.
fn unit_name(unit: &TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}
