//! Floats of 8 and 16 bits that Arrow lacks: their bits are stored as UInt8 or UInt16.
//!
//! The formats are those of <https://github.com/jax-ml/ml_dtypes>, whose names PyTorch has too.

use arrow_schema::{DataType, Field};
use half::bf16;

use crate::DTYPE_KEY;

/// The value of [`DTYPE_KEY`] for bfloat16.
pub const BFLOAT16: &str = "bfloat16";

/// A float that Arrow lacks. [`DTYPE_KEY`] in the metadata of a field names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallFloat {
    /// The upper half of a float32.
    BFloat16,
    /// 4 bits of exponent and 3 of mantissa, without infinities; NaN has all bits set.
    Float8E4M3FN,
    /// 4 bits of exponent and 3 of mantissa, without infinities and negative zero; NaN takes the bits of the latter.
    Float8E4M3FNUZ,
    /// 5 bits of exponent and 2 of mantissa, with infinities and NaN as IEEE 754 has them.
    Float8E5M2,
    /// 5 bits of exponent and 2 of mantissa, without infinities and negative zero; NaN takes the bits of the latter.
    Float8E5M2FNUZ,
}

/// The layout of a float of 8 bits.
struct Layout {
    mantissa_bits: u32,
    bias: i32,
    /// Whether there are neither infinities nor a negative zero, whose bits are NaN.
    is_unsigned_zero: bool,
    /// Whether the largest exponent stands for infinities and NaN.
    has_infinities: bool,
}

impl SmallFloat {
    /// All of them.
    pub const ALL: [SmallFloat; 5] = [
        SmallFloat::BFloat16,
        SmallFloat::Float8E4M3FN,
        SmallFloat::Float8E4M3FNUZ,
        SmallFloat::Float8E5M2,
        SmallFloat::Float8E5M2FNUZ,
    ];

    /// Returns the float that the metadata of a column names, if the column stores its bits, in lists or not.
    pub fn of(field: &Field) -> Option<Self> {
        let mut stored = field.data_type();
        while let DataType::List(item) | DataType::LargeList(item) = stored {
            stored = item.data_type();
        }
        while let DataType::FixedSizeList(item, _) = stored {
            stored = item.data_type();
        }
        Self::stored_as(field, stored)
    }

    /// Returns the float that the metadata of a column names, if its bits are stored in the type `stored`.
    pub(crate) fn stored_as(field: &Field, stored: &DataType) -> Option<Self> {
        let float = Self::named(field.metadata().get(DTYPE_KEY)?)?;
        (*stored == float.storage()).then_some(float)
    }

    /// Returns the float of a name, which is that of PyTorch and of ml_dtypes.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|float| float.name() == name)
    }

    /// Returns the name that PyTorch and ml_dtypes have for it.
    pub fn name(self) -> &'static str {
        match self {
            SmallFloat::BFloat16 => BFLOAT16,
            SmallFloat::Float8E4M3FN => "float8_e4m3fn",
            SmallFloat::Float8E4M3FNUZ => "float8_e4m3fnuz",
            SmallFloat::Float8E5M2 => "float8_e5m2",
            SmallFloat::Float8E5M2FNUZ => "float8_e5m2fnuz",
        }
    }

    /// Returns the Arrow type in which its bits are stored.
    pub fn storage(self) -> DataType {
        match self {
            SmallFloat::BFloat16 => DataType::UInt16,
            _ => DataType::UInt8,
        }
    }

    /// Returns the number that bits stand for. Floats of 8 bits have theirs in the lower half.
    pub fn to_f32(self, bits: u16) -> f32 {
        let layout = match self {
            SmallFloat::BFloat16 => return bf16::from_bits(bits).to_f32(),
            SmallFloat::Float8E4M3FN => layout(3, 7, false, false),
            SmallFloat::Float8E4M3FNUZ => layout(3, 8, true, false),
            SmallFloat::Float8E5M2 => layout(2, 15, false, true),
            SmallFloat::Float8E5M2FNUZ => layout(2, 16, true, false),
        };
        layout.to_f32(bits & 0xff)
    }
}

fn layout(mantissa_bits: u32, bias: i32, is_unsigned_zero: bool, has_infinities: bool) -> Layout {
    Layout { mantissa_bits, bias, is_unsigned_zero, has_infinities }
}

impl Layout {
    fn to_f32(&self, bits: u16) -> f32 {
        let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
        let magnitude = bits & 0x7f;
        let exponent_max = 0x7f >> self.mantissa_bits;
        let (exponent, mantissa) = (magnitude >> self.mantissa_bits, magnitude & ((1 << self.mantissa_bits) - 1));
        let is_nan = match (self.is_unsigned_zero, self.has_infinities) {
            (true, _) => bits == 0x80,
            (false, true) => exponent == exponent_max && mantissa != 0,
            (false, false) => magnitude == 0x7f,
        };
        if is_nan {
            return f32::NAN;
        }
        if self.has_infinities && exponent == exponent_max {
            return sign * f32::INFINITY;
        }
        let share = f32::from(mantissa) / f32::from(1u16 << self.mantissa_bits);
        // Numbers with the exponent 0 have no leading one, and the scale of the exponent 1.
        let significand = if exponent == 0 { share } else { 1.0 + share };
        sign * significand * 2f32.powi(i32::from(exponent.max(1)) - self.bias)
    }
}

/// Returns whether the metadata of a column says that its numbers are bfloat16.
pub fn is_bfloat16(field: &Field) -> bool {
    field.metadata().get(DTYPE_KEY).is_some_and(|name| name == BFLOAT16)
}
