//! Changed records give rows or errors, and are split as the crate `csv` splits them, through arrow-csv.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use stoker_fuzz::Target;

use super::super::DelimitedText;
use crate::FormatOptions;
use crate::read_files::{MemoryFolder, plan, read_files};

/// The tables of a batch and of a sample: some KiB of text.
const MEMORY_BYTES_MAX: usize = 32 << 20;

/// Returns the text of all fields, as arrow-csv reads them; `None` if it refuses the file.
fn fields_of_arrow(input: &[u8], num_columns: usize) -> Option<Vec<Vec<String>>> {
    let fields: Vec<Field> = (0..num_columns).map(|at| Field::new(at.to_string(), DataType::Utf8, true)).collect();
    let reader = arrow::csv::ReaderBuilder::new(Arc::new(Schema::new(fields))).with_header(true).build(input).ok()?;
    let mut rows = Vec::new();
    for batch in reader {
        let batch = batch.ok()?;
        for row in 0..batch.num_rows() {
            let text = |column| arrow::util::display::array_value_to_string(batch.column(column), row).unwrap();
            rows.push((0..num_columns).map(text).collect());
        }
    }
    Some(rows)
}

#[test]
fn records() {
    let seeds = [
        "a,b,c\n1,2.5,x\n-3,,\"y \"\"z\"\"\nnext\"\n",
        "a,b,c\r\n2024-02-29,2024-02-29T01:02:03Z,true\r\n1970-01-01,1969-12-31 00:00:00+02:00,false\r\n",
        "\u{feff}a,b,c\r1,2,3\r\r\n4,5\n6,7,8,9",
    ];
    let tokens = ["\"", "\"\"", "\r\n", "\n", ",", "1e5", "-", "0x", "2024-02-29", "T", "Z", "nan", "\u{e9}"];
    let target = Target::new("delimited").seeds(seeds.map(|seed| seed.as_bytes().to_vec())).tokens(tokens);
    target.memory_bytes_max(MEMORY_BYTES_MAX).run(|input| {
        let folder = MemoryFolder::new([("a.csv", input)]);
        let options = FormatOptions { sampled_rows: 2, ..FormatOptions::default() };
        let Ok(files) = plan(&DelimitedText, &folder, &options) else { return false };
        let read = read_files(files.as_ref(), 100).unwrap();
        let whole = read_files(files.as_ref(), 1 << 20).unwrap();
        assert_eq!((&read.rows, &read.bad), (&whole.rows, &whole.bad));
        let num_columns = read.rows.num_columns();
        let is_text = read.rows.schema_ref().fields().iter().all(|field| *field.data_type() == DataType::Utf8);
        if let (true, true, Some(expected)) = (read.bad.is_empty(), is_text, fields_of_arrow(input, num_columns)) {
            let shown = |row: usize, column: usize| {
                arrow::util::display::array_value_to_string(read.rows.column(column), row).unwrap()
            };
            let found: Vec<Vec<String>> = (0..read.rows.num_rows())
                .map(|row| (0..num_columns).map(|column| shown(row, column)).collect())
                .collect();
            assert_eq!(found, expected);
        }
        true
    });
}
