//! The types of elements.

/// The type of an element. Names are those of NumPy, of ml_dtypes and of PyTorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Dtype {
    /// `uint8`.
    UInt8 = 1,
    /// `int8`.
    Int8 = 2,
    /// `uint16`.
    UInt16 = 3,
    /// `int16`.
    Int16 = 4,
    /// `uint32`.
    UInt32 = 5,
    /// `int32`.
    Int32 = 6,
    /// `uint64`.
    UInt64 = 7,
    /// `int64`.
    Int64 = 8,
    /// `float16`.
    Float16 = 9,
    /// `float32`.
    Float32 = 10,
    /// `float64`.
    Float64 = 11,
    /// `bfloat16`.
    BFloat16 = 12,
    /// `float8_e4m3fn`.
    Float8E4M3FN = 13,
    /// `float8_e4m3fnuz`.
    Float8E4M3FNUZ = 14,
    /// `float8_e5m2`.
    Float8E5M2 = 15,
    /// `float8_e5m2fnuz`.
    Float8E5M2FNUZ = 16,
}

impl Dtype {
    /// All types.
    pub const ALL: [Dtype; 16] = [
        Dtype::UInt8,
        Dtype::Int8,
        Dtype::UInt16,
        Dtype::Int16,
        Dtype::UInt32,
        Dtype::Int32,
        Dtype::UInt64,
        Dtype::Int64,
        Dtype::Float16,
        Dtype::Float32,
        Dtype::Float64,
        Dtype::BFloat16,
        Dtype::Float8E4M3FN,
        Dtype::Float8E4M3FNUZ,
        Dtype::Float8E5M2,
        Dtype::Float8E5M2FNUZ,
    ];

    /// Returns the type of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::UInt8 => "uint8",
            Dtype::Int8 => "int8",
            Dtype::UInt16 => "uint16",
            Dtype::Int16 => "int16",
            Dtype::UInt32 => "uint32",
            Dtype::Int32 => "int32",
            Dtype::UInt64 => "uint64",
            Dtype::Int64 => "int64",
            Dtype::Float16 => "float16",
            Dtype::Float32 => "float32",
            Dtype::Float64 => "float64",
            Dtype::BFloat16 => "bfloat16",
            Dtype::Float8E4M3FN => "float8_e4m3fn",
            Dtype::Float8E4M3FNUZ => "float8_e4m3fnuz",
            Dtype::Float8E5M2 => "float8_e5m2",
            Dtype::Float8E5M2FNUZ => "float8_e5m2fnuz",
        }
    }

    /// Returns the bytes of an element.
    pub fn width(self) -> usize {
        match self {
            Dtype::UInt8
            | Dtype::Int8
            | Dtype::Float8E4M3FN
            | Dtype::Float8E4M3FNUZ
            | Dtype::Float8E5M2
            | Dtype::Float8E5M2FNUZ => 1,
            Dtype::UInt16 | Dtype::Int16 | Dtype::Float16 | Dtype::BFloat16 => 2,
            Dtype::UInt32 | Dtype::Int32 | Dtype::Float32 => 4,
            Dtype::UInt64 | Dtype::Int64 | Dtype::Float64 => 8,
        }
    }

    /// The number of the type in frames.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }
}
