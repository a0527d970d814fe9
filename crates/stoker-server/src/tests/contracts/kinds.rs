//! Columns of all kinds, small and large, whose values follow from the ids of their rows.
//!
//! ```text
//! id ──written──► tensor, list, file ──codec──► table ──stream──► batch ──decompress──► that value, or its rounding
//! ```
//!
//! All tables have all columns; a query selects some of them. A new kind of column is a new row of [`COLUMNS`].

use std::fmt;
use std::sync::{Arc, LazyLock};

use arrow_array::builder::{LargeBinaryBuilder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, FixedSizeListArray, Float32Array, Float64Array,
    Int32Array, Int64Array, LargeBinaryArray, LargeStringArray, ListArray, PrimitiveArray, StringArray, StructArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field};
use arrow_select::take::take;
use proptest::prelude::*;
use proptest::sample::subsequence;
use proptest::test_runner::TestCaseResult;
use stoker_columns::{
    CODEC_KEY, CompressedTensor, EXTENSION_METADATA_KEY, EXTENSION_NAME_KEY, FIXED_SHAPE_TENSOR, KIND_ENCODED_IMAGE,
    KIND_KEY, VARIABLE_SHAPE_TENSOR, is_bfloat16,
};

use crate::tests::contracts::case::NUM_ROWS;

/// The most columns that a query selects.
const COLUMNS_MAX: usize = 3;

const SHAPE: &str = EXTENSION_METADATA_KEY;
const TENSOR: (&str, &str) = (EXTENSION_NAME_KEY, FIXED_SHAPE_TENSOR);
const VARIABLE: (&str, &str) = (EXTENSION_NAME_KEY, VARIABLE_SHAPE_TENSOR);
const IMAGE: (&str, &str) = (KIND_KEY, KIND_ENCODED_IMAGE);

/// A column of the tables.
pub struct KindColumn {
    pub name: &'static str,
    /// About the bytes of a row.
    row_bytes: u64,
    /// The metadata of the field with which it is written. It may choose a codec.
    metadata: &'static [(&'static str, &'static str)],
    is_nullable: bool,
    /// Returns the values that are written for the ids from 0 to a number.
    written: fn(i64) -> ArrayRef,
}

/// Some columns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KindColumns(u64);

static COLUMNS: [KindColumn; 36] = [
    column("uint8_2x3", 6, |rows| tensor::<UInt8Type>(rows, 6, byte)).with(&[TENSOR, (SHAPE, r#"{"shape":[2,3]}"#)]),
    column("int16_3x180", 1_080, |rows| tensor::<Int16Type>(rows, 540, |id, at| number(id, at) as i16))
        .with(&[TENSOR, (SHAPE, r#"{"shape":[3,180],"permutation":[1,0]}"#)]),
    column("int64_140", 1_120, |rows| tensor::<Int64Type>(rows, 140, number))
        .with(&[TENSOR, (SHAPE, r#"{"shape":[140]}"#)]),
    column("float64_2x1", 16, |rows| tensor::<Float64Type>(rows, 2, |id, at| f64::from(float(id, at))))
        .with(&[TENSOR, (SHAPE, r#"{"shape":[2,1]}"#)]),
    column("vector_5", 20, |rows| tensor::<Float32Type>(rows, 5, float)),
    column("vector_260", 1_040, |rows| tensor::<Float32Type>(rows, 260, float)),
    column("vector_or_null", 20, |rows| with_nulls(&tensor::<Float32Type>(rows, 5, float), 6)).nullable(),
    column("whole", 4, |rows| Arc::new(Int32Array::from_iter_values((0..rows).map(|id| number(id, 0) as i32)))),
    column("whole_or_null", 8, |rows| {
        Arc::new(Int64Array::from_iter((0..rows).map(|id| (id % 7 != 2).then(|| number(id, 1)))))
    })
    .nullable(),
    column("real_or_null", 8, |rows| {
        Arc::new(Float64Array::from_iter((0..rows).map(|id| (id % 5 != 3).then(|| f64::from(float(id, 2))))))
    })
    .nullable(),
    column("flag", 1, |rows| Arc::new(BooleanArray::from_iter((0..rows).map(|id| Some(number(id, 0) % 3 == 1))))),
    column("flag_or_null", 1, |rows| {
        Arc::new(BooleanArray::from_iter((0..rows).map(|id| (id % 7 != 2).then_some(id % 3 == 1))))
    })
    .nullable(),
    column("words", 120, |rows| Arc::new(StringArray::from_iter((0..rows).map(words)))).nullable(),
    column("large_words", 120, |rows| Arc::new(LargeStringArray::from_iter((0..rows).map(words)))).nullable(),
    column("photo", 900, |rows| Arc::new(BinaryArray::from_iter((0..rows).map(|id| Some(image(id)))))).with(&[IMAGE]),
    column("large_photo", 900, |rows| {
        Arc::new(LargeBinaryArray::from_iter((0..rows).map(|id| (id % 9 != 4).then(|| image(id)))))
    })
    .with(&[IMAGE])
    .nullable(),
    column("views", 1_300, views),
    column("pair", 24, pairs).nullable(),
    column("ragged", 60, ragged).nullable(),
    column("boxes", 24, boxes),
    column("grid", 24, grids).with(&[VARIABLE, (SHAPE, r#"{"uniform_shape":[null,3]}"#)]),
    column("half_4", 8, |rows| tensor::<Float32Type>(rows, 4, float)).with(&[(CODEC_KEY, "float16")]),
    column("half_540", 1_080, |rows| tensor::<Float64Type>(rows, 540, |id, at| f64::from(float(id, at)))).with(&[
        (CODEC_KEY, "float16"),
        TENSOR,
        (SHAPE, r#"{"shape":[2,270]}"#),
    ]),
    column("brain_4", 8, |rows| tensor::<Float64Type>(rows, 4, |id, at| f64::from(float(id, at))))
        .with(&[(CODEC_KEY, "bfloat16")]),
    column("brain_540", 1_080, |rows| tensor::<Float32Type>(rows, 540, float)).with(&[(CODEC_KEY, "bfloat16")]),
    column("pco_4", 16, |rows| tensor::<Int32Type>(rows, 4, |id, at| number(id, at) as i32))
        .with(&[(CODEC_KEY, "pco:1")]),
    column("pco_300", 900, |rows| tensor::<Float32Type>(rows, 300, float_or_nan)).with(&[
        (CODEC_KEY, "pco:2"),
        TENSOR,
        (SHAPE, r#"{"shape":[20,15]}"#),
    ]),
    column("zstd_7", 7, |rows| tensor::<UInt8Type>(rows, 7, byte)).with(&[(CODEC_KEY, "zstd")]),
    column("zstd_540", 900, |rows| tensor::<Int16Type>(rows, 540, |id, at| number(id, at / 9) as i16))
        .with(&[(CODEC_KEY, "zstd:1")]),
    column("lz4_4", 16, |rows| tensor::<Float32Type>(rows, 4, float_or_nan)).with(&[(CODEC_KEY, "lz4")]),
    column("lz4_1300", 900, |rows| tensor::<UInt8Type>(rows, 1_300, |id, at| byte(id, at / 20))).with(&[
        (CODEC_KEY, "lz4"),
        TENSOR,
        (SHAPE, r#"{"shape":[13,100]}"#),
    ]),
    column("streams_3", 24, |rows| tensor::<Float64Type>(rows, 3, |id, at| f64::from(float_or_nan(id, at))))
        .with(&[(CODEC_KEY, "byte_stream_split")]),
    column("streams_300", 900, |rows| tensor::<Int64Type>(rows, 300, number)).with(&[(CODEC_KEY, "byte_stream_split")]),
    column("zstd_ragged", 60, ragged).with(&[(CODEC_KEY, "zstd")]).nullable(),
    column("lz4_ragged", 60, ragged).with(&[(CODEC_KEY, "lz4")]).nullable(),
    column("zstd_boxes", 24, boxes).with(&[(CODEC_KEY, "zstd:7")]),
];

/// The values that are written, for all ids.
static WRITTEN: LazyLock<Vec<ArrayRef>> = LazyLock::new(|| {
    let num_ids = NUM_ROWS.into_iter().max().unwrap_or(0);
    COLUMNS.iter().map(|column| (column.written)(num_ids)).collect()
});

/// The values that are read, for all ids. Those of lossy columns are float32.
static EXPECTED: LazyLock<Vec<ArrayRef>> = LazyLock::new(|| {
    let expected = |(column, written): (&KindColumn, &ArrayRef)| match column.fraction_bits() {
        Some(bits) => rounded(written, bits),
        None => written.clone(),
    };
    COLUMNS.iter().zip(WRITTEN.iter()).map(expected).collect()
});

/// Any columns, up to [`COLUMNS_MAX`].
pub fn kind_columns() -> impl Strategy<Value = KindColumns> {
    let indices: Vec<usize> = (0..COLUMNS.len()).collect();
    let some = subsequence(indices, 0..=COLUMNS_MAX);
    some.prop_map(|indices| KindColumns(indices.into_iter().fold(0, |bits, index| bits | (1 << index))))
}

/// Returns the fields with which the columns are written.
pub fn fields() -> Vec<Field> {
    let field = |(column, written): (&KindColumn, &ArrayRef)| {
        let metadata = column.metadata.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        Field::new(column.name, written.data_type().clone(), column.is_nullable).with_metadata(metadata)
    };
    COLUMNS.iter().zip(WRITTEN.iter()).map(field).collect()
}

/// Returns the values that are written for the ids `0..num_rows`, one array for each of [`fields`].
pub fn arrays(num_rows: i64) -> Vec<ArrayRef> {
    WRITTEN.iter().map(|written| written.slice(0, num_rows as usize)).collect()
}

/// Checks that a column has what was written for the rows with these ids. `field` has the column's metadata.
pub fn check_values(name: &str, field: &Field, found: &ArrayRef, ids: &[i64]) -> TestCaseResult {
    let fail = |reason: String| Err(TestCaseError::fail(format!("column {name}: {reason}")));
    let Some(index) = COLUMNS.iter().position(|column| column.name == name) else {
        return fail("it was not written".into());
    };
    let expected = take(&EXPECTED[index], &Int64Array::from(ids.to_vec()), None)?;
    let found = readable(field, found)?;
    if found.data_type() != expected.data_type() {
        return fail(format!("it is {}, not {}", found.data_type(), expected.data_type()));
    }
    if *found == *expected {
        return Ok(());
    }
    let differs = |row: &usize| *found.slice(*row, 1) != *expected.slice(*row, 1);
    match (0..ids.len().min(found.len())).find(differs) {
        Some(row) => {
            let (found, expected) = (found.slice(row, 1), expected.slice(row, 1));
            fail(format!("row {row} with id {} has {found:?}, not {expected:?}", ids[row]))
        }
        None => fail(format!("it has {} values for {} rows", found.len(), ids.len())),
    }
}

impl KindColumns {
    /// Returns the columns in the order in which queries select them.
    pub fn iter(self) -> impl Iterator<Item = &'static KindColumn> {
        COLUMNS.iter().enumerate().filter(move |(index, _)| (self.0 >> index) & 1 == 1).map(|(_, column)| column)
    }

    /// Returns about the bytes of a row of these columns.
    pub fn row_bytes(self) -> u64 {
        self.iter().map(|column| column.row_bytes).sum()
    }
}

impl fmt::Debug for KindColumns {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.iter().map(|column| column.name)).finish()
    }
}

impl KindColumn {
    const fn with(self, metadata: &'static [(&'static str, &'static str)]) -> Self {
        Self { metadata, ..self }
    }

    const fn nullable(self) -> Self {
        Self { is_nullable: true, ..self }
    }

    /// Returns the bits behind the point of a lossy column's floats.
    fn fraction_bits(&self) -> Option<i32> {
        match self.metadata.iter().find(|(key, _)| *key == CODEC_KEY)?.1 {
            "float16" => Some(10),
            "bfloat16" => Some(7),
            _ => None,
        }
    }
}

const fn column(name: &'static str, row_bytes: u64, written: fn(i64) -> ArrayRef) -> KindColumn {
    KindColumn { name, row_bytes, metadata: &[], is_nullable: false, written }
}

/// Returns a number of 17 bits. The numbers of two ids differ.
fn number(id: i64, at: usize) -> i64 {
    (id * 7_919 + at as i64 * 104_729) & 0x1_ffff
}

fn byte(id: i64, at: usize) -> u8 {
    (number(id, at) >> (at % 10)) as u8
}

/// Returns a float that float32 holds exactly, and that is rounded in floats of 16 bits.
fn float(id: i64, at: usize) -> f32 {
    (number(id, at) - 0x1_0000) as f32 / 128.0
}

fn float_or_nan(id: i64, at: usize) -> f32 {
    match (id % 17, at) {
        (3, 1) => f32::NAN,
        (4, 2) => -0.0,
        (5, 0) => f32::NEG_INFINITY,
        _ => float(id, at),
    }
}

/// Returns a text, which may be empty, and is long in some rows; `None` for NULL.
fn words(id: i64) -> Option<String> {
    match id % 97 {
        0..=9 => None,
        10..=12 => Some(String::new()),
        13 => Some(format!("a long text: {id} ").repeat(300)),
        _ => Some(format!("text {id} {}", "é".repeat(id as usize % 9))),
    }
}

/// Returns a file that begins as a PNG file does. It is large in some rows.
fn image(id: i64) -> Vec<u8> {
    let length = if id % 50 == 7 { 12_000 } else { id as usize * 131 % 900 };
    let content = (0..length).map(|at| byte(id, at));
    b"\x89PNG\r\n\x1a\n".iter().copied().chain(id.to_le_bytes()).chain(content).collect()
}

/// Returns lists of up to three files of images.
fn views(num_rows: i64) -> ArrayRef {
    let mut lists = ListBuilder::new(LargeBinaryBuilder::new());
    for id in 0..num_rows {
        (0..id % 4).for_each(|view| lists.values().append_value(image(id + view)));
        lists.append(true);
    }
    Arc::new(lists.finish())
}

/// Returns structs of a number and a text, each of which may be NULL, as may be the struct.
fn pairs(num_rows: i64) -> ArrayRef {
    let numbers = Int32Array::from_iter((0..num_rows).map(|id| (id % 5 != 1).then(|| number(id, 0) as i32)));
    let texts = StringArray::from_iter((0..num_rows).map(words));
    let members = vec![Field::new("number", DataType::Int32, true), Field::new("text", DataType::Utf8, true)];
    let nulls = NullBuffer::from_iter((0..num_rows).map(|id| id % 11 != 3));
    Arc::new(StructArray::new(members.into(), vec![Arc::new(numbers), Arc::new(texts)], Some(nulls)))
}

/// Returns lists of numbers, which may be empty, NULL, or have NULLs.
fn ragged(num_rows: i64) -> ArrayRef {
    let value = |id: i64, at: i64| (at % 5 != 4).then(|| (number(id, 0) + at) as i32);
    let list = |id: i64| (id % 13 != 5).then(|| (0..id * 7 % 29).map(|at| value(id, at)).collect::<Vec<_>>());
    Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>((0..num_rows).map(list)))
}

/// Returns lists of four numbers each.
fn boxes(num_rows: i64) -> ArrayRef {
    let numbers = (0..num_rows).flat_map(|id| (0..4 * (id as usize % 4)).map(move |at| float(id, at)));
    lists(fixed(Arc::new(Float32Array::from_iter_values(numbers)), 4), (0..num_rows).map(|id| id as usize % 4))
}

/// Returns tensors of three columns, and of up to four rows each.
fn grids(num_rows: i64) -> ArrayRef {
    let heights = || (0..num_rows).map(|id| id as usize % 5);
    let numbers = (0..num_rows).flat_map(|id| (0..3 * (id as usize % 5)).map(move |at| float(id, at)));
    let data = lists(Arc::new(Float32Array::from_iter_values(numbers)), heights().map(|height| height * 3));
    let sizes = Int32Array::from_iter_values(heights().flat_map(|height| [height as i32, 3]));
    let sizes = fixed(Arc::new(sizes), 2);
    let members =
        vec![Field::new("data", data.data_type().clone(), true), Field::new("shape", sizes.data_type().clone(), true)];
    Arc::new(StructArray::new(members.into(), vec![data, sizes], None))
}

/// Returns rows of `length` numbers.
fn tensor<T: ArrowPrimitiveType>(num_rows: i64, length: usize, value: fn(i64, usize) -> T::Native) -> ArrayRef {
    let numbers = (0..num_rows).flat_map(|id| (0..length).map(move |at| value(id, at)));
    fixed(Arc::new(PrimitiveArray::<T>::from_iter_values(numbers)), length)
}

fn fixed(values: ArrayRef, length: usize) -> ArrayRef {
    Arc::new(FixedSizeListArray::new(item(&values), length as i32, values, None))
}

fn lists(values: ArrayRef, lengths: impl Iterator<Item = usize>) -> ArrayRef {
    let lengths: Vec<usize> = lengths.collect();
    Arc::new(ListArray::new(item(&values), OffsetBuffer::from_lengths(lengths), values, None))
}

fn item(values: &ArrayRef) -> Arc<Field> {
    Arc::new(Field::new("item", values.data_type().clone(), true))
}

/// Returns lists of which each `divisor`-th is NULL.
fn with_nulls(array: &ArrayRef, divisor: usize) -> ArrayRef {
    let lists = array.as_fixed_size_list();
    let nulls = NullBuffer::from_iter((0..lists.len()).map(|row| row % divisor != 1));
    Arc::new(FixedSizeListArray::new(item(lists.values()), lists.value_length(), lists.values().clone(), Some(nulls)))
}

/// Returns the nearest floats with so many bits behind the point, ties to even (IEEE 754, 4.3.1), as float32.
fn rounded(written: &ArrayRef, fraction_bits: i32) -> ArrayRef {
    let lists = written.as_fixed_size_list();
    let floats: Vec<f64> = match lists.values().data_type() {
        DataType::Float32 => {
            lists.values().as_primitive::<Float32Type>().values().iter().copied().map(f64::from).collect()
        }
        _ => lists.values().as_primitive::<Float64Type>().values().to_vec(),
    };
    let nearest = |float: f64| {
        if float == 0.0 {
            return 0.0;
        }
        let unit = 2f64.powi(float.abs().log2().floor() as i32 - fraction_bits);
        ((float / unit).round_ties_even() * unit) as f32
    };
    fixed(Arc::new(Float32Array::from_iter_values(floats.into_iter().map(nearest))), lists.value_length() as usize)
}

/// Returns the values of a column as a reader of its metadata gets them: tensors of frames, and float32 of floats with
/// 16 bits.
fn readable(field: &Field, array: &ArrayRef) -> Result<ArrayRef, TestCaseError> {
    if let Some(tensor) = CompressedTensor::try_of(field).map_err(TestCaseError::fail)? {
        return Ok(tensor.decompress(array)?);
    }
    let Some(lists) = array.as_fixed_size_list_opt() else { return Ok(array.clone()) };
    let floats: Vec<f32> = match lists.values().data_type() {
        DataType::Float16 => {
            lists.values().as_primitive::<Float16Type>().values().iter().map(|half| half.to_f32()).collect()
        }
        DataType::UInt16 if is_bfloat16(field) => {
            let bits = lists.values().as_primitive::<UInt16Type>().values().iter();
            bits.map(|bits| f32::from_bits(u32::from(*bits) << 16)).collect()
        }
        _ => return Ok(array.clone()),
    };
    Ok(fixed(Arc::new(Float32Array::from(floats)), lists.value_length() as usize))
}
