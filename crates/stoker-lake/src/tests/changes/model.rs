//! A model of a table in memory, and its comparison with the table.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Int64Array, LargeBinaryArray, RecordBatch, StringArray, UInt8Array,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use futures::TryStreamExt;
use stoker_checksum::checksum;

use crate::tests::data::{TestResult, image_field, latest, small, table_name, tensor};
use crate::{ChangeNote, Changed, CommitMode, DenseProbe, LakeStore, ROW_ADDR, ScanRequest, Table};

pub type Failure = Box<dyn std::error::Error>;

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Number(i64),
    Text(String),
    Bytes(Vec<u8>),
}

/// The values of a row by column.
pub type Row = BTreeMap<String, Value>;

/// Numbers that look random and are the same in each run.
pub struct Random(u64);

impl Random {
    /// A number below `bound`.
    pub fn next(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    pub fn value(&mut self, field: &Field) -> Value {
        if field.is_nullable() && self.next(4) == 0 {
            return Value::Null;
        }
        match field.data_type() {
            DataType::Int64 => Value::Number(self.next(1_000) as i64),
            DataType::Utf8 => Value::Text("ab ".repeat(self.next(20))),
            DataType::LargeBinary => {
                let length = self.next(3_000);
                Value::Bytes((0..length).map(|_| self.next(256) as u8).collect())
            }
            DataType::FixedSizeList(_, length) => {
                Value::Bytes((0..*length as usize).map(|_| self.next(256) as u8).collect())
            }
            other => panic!("the tests have no values of type {other}"),
        }
    }
}

fn array<'a>(field: &Field, values: impl Iterator<Item = &'a Value>) -> ArrayRef {
    let bytes = |value: &Value| match value {
        Value::Bytes(bytes) => Some(bytes.clone()),
        _ => None,
    };
    match field.data_type() {
        DataType::Int64 => Arc::new(Int64Array::from_iter(values.map(|value| match value {
            Value::Number(number) => Some(*number),
            _ => None,
        }))),
        DataType::Utf8 => Arc::new(StringArray::from_iter(values.map(|value| match value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }))),
        DataType::LargeBinary => Arc::new(LargeBinaryArray::from_iter(values.map(bytes))),
        DataType::FixedSizeList(item, length) => {
            let items = UInt8Array::from(values.filter_map(bytes).flatten().collect::<Vec<u8>>());
            Arc::new(FixedSizeListArray::new(item.clone(), *length, Arc::new(items), None))
        }
        other => panic!("the tests have no values of type {other}"),
    }
}

fn value_of(array: &ArrayRef, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match array.data_type() {
        DataType::Int64 => Value::Number(array.as_primitive::<Int64Type>().value(row)),
        DataType::Utf8 => Value::Text(array.as_string::<i32>().value(row).to_string()),
        DataType::LargeBinary => Value::Bytes(array.as_binary::<i64>().value(row).to_vec()),
        DataType::FixedSizeList(..) => {
            Value::Bytes(array.as_fixed_size_list().value(row).as_primitive::<UInt8Type>().values().to_vec())
        }
        other => panic!("the tests have no values of type {other}"),
    }
}

/// Returns a batch with these columns of rows.
pub fn batch<'a>(fields: &[Field], rows: impl Iterator<Item = &'a Row> + Clone) -> RecordBatch {
    let columns = fields.iter().map(|field| array(field, rows.clone().map(|row| &row[field.name()]))).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields.to_vec())), columns).expect("the columns fit")
}

fn rows_of_batch(batch: &RecordBatch) -> Vec<Row> {
    let schema = batch.schema();
    let row = |index: usize| {
        let values = schema.fields().iter().zip(batch.columns());
        let values = values.filter(|(field, _)| field.name() != ROW_ADDR);
        values.map(|(field, column)| (field.name().clone(), value_of(column, index))).collect()
    };
    (0..batch.num_rows()).map(row).collect()
}

pub fn id(row: &Row) -> i64 {
    match row["id"] {
        Value::Number(id) => id,
        ref other => panic!("{other:?} is no id"),
    }
}

fn by_id(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by_key(id);
    rows
}

/// The rows of a table with their addresses, in the order of a scan.
pub async fn rows_of(table: &Table) -> Result<Vec<(u64, Row)>, Failure> {
    let columns = table.schema().fields().iter().map(|field| field.name().clone()).collect();
    let request = ScanRequest { columns, with_row_addr: true, batch_size: 7, ..ScanRequest::default() };
    let batches: Vec<RecordBatch> = table.scan(&request).await?.try_collect().await?;
    let mut rows = Vec::new();
    for batch in &batches {
        let addrs = batch.column_by_name(ROW_ADDR).ok_or("addresses")?.as_primitive::<UInt64Type>().clone();
        rows.extend(addrs.values().iter().copied().zip(rows_of_batch(batch)));
    }
    Ok(rows)
}

/// Compares a table with the model: by a scan, by Lance's own scan, by address, and by the bytes of dense columns.
pub async fn check(table: &Table, model: &[Row]) -> TestResult {
    let (version, model) = (table.version(), by_id(model.to_vec()));
    assert_eq!(table.num_rows(), model.len() as u64, "version {version}");
    let scanned = rows_of(table).await?;
    assert_eq!(by_id(scanned.iter().map(|(_, row)| row.clone()).collect()), model, "version {version}");
    let batches: Vec<RecordBatch> = table.dataset().scan().try_into_stream().await?.try_collect().await?;
    assert_eq!(by_id(batches.iter().flat_map(rows_of_batch).collect()), model, "version {version}, by Lance");
    table.dataset().validate().await?;

    let addrs: Vec<u64> = scanned.iter().rev().map(|(addr, _)| *addr).collect();
    let columns: Vec<String> = table.schema().fields().iter().map(|field| field.name().clone()).collect();
    let taken = rows_of_batch(&table.take(&columns, &addrs).await?);
    assert_eq!(taken, scanned.iter().rev().map(|(_, row)| row.clone()).collect::<Vec<_>>(), "version {version}, taken");
    for field in table.schema().fields() {
        if !matches!(field.data_type(), DataType::FixedSizeList(..)) {
            continue;
        }
        let DenseProbe::Dense(dense) = table.dense_column(field.name()).await? else {
            return Err(format!("{} is not dense in version {version}", field.name()).into());
        };
        let checksums = match &dense.checksums {
            Some(checksums) => checksums.load(&addrs).await?,
            None => vec![None; addrs.len()],
        };
        for ((addr, row), stored) in addrs.iter().zip(&taken).zip(checksums) {
            let file = dense.file((addr >> 32) as u32).ok_or("every fragment has a file")?;
            let (offset, _) = file.locate(addr & 0xffff_ffff).ok_or("every row has bytes")?;
            let bytes = file.reader.read(offset..offset + dense.row_bytes as u64).await?;
            assert_eq!(Value::Bytes(bytes.to_vec()), row[field.name()], "version {version}, row {addr}");
            assert_eq!(stored, Some(checksum(&bytes)), "version {version}, row {addr}");
        }
    }
    Ok(())
}

/// A table `t` and its model.
pub struct Model {
    pub lake: LakeStore,
    pub random: Random,
    pub rows: Vec<Row>,
    next_id: i64,
    next_column: usize,
}

impl Model {
    /// Creates the table with 40 rows in fragments of 10.
    pub async fn create(lake: LakeStore, seed: u64) -> Result<Self, Failure> {
        let fields = [
            Field::new("id", DataType::Int64, false),
            Field::new("name", DataType::Utf8, true),
            tensor("x", DataType::UInt8, &[1_500]),
            image_field("image"),
        ];
        let schema: SchemaRef = Arc::new(Schema::new(fields.to_vec()));
        let mut model = Self { lake, random: Random(seed), rows: Vec::new(), next_id: 0, next_column: 0 };
        let rows: Vec<Row> = (0..40).map(|_| model.new_row(&fields)).collect();
        let mut writer = model.lake.writer(&table_name("t"), &schema, false, small(10, 4_000)).await?;
        writer.write(&batch(&fields, rows.iter())).await?;
        let drafts = writer.finish().await?;
        model.lake.commit(&table_name("t"), &schema, CommitMode::Create, drafts, None).await?;
        model.rows = rows;
        Ok(model)
    }

    fn new_row(&mut self, fields: &[Field]) -> Row {
        let mut row: Row = fields.iter().map(|field| (field.name().clone(), self.random.value(field))).collect();
        row.insert("id".into(), Value::Number(self.next_id));
        self.next_id += 1;
        row
    }

    pub async fn table(&self) -> crate::Result<Table> {
        latest(&self.lake, &table_name("t")).await
    }

    /// Deletes, updates and inserts some rows at once.
    pub async fn change_rows(&mut self, table: &Table) -> TestResult {
        let fields: Vec<Field> = table.schema().fields().iter().map(|field| field.as_ref().clone()).collect();
        let addrs: HashMap<i64, u64> = rows_of(table).await?.iter().map(|(addr, row)| (id(row), *addr)).collect();
        let updated: Vec<Field> = fields[1..].iter().filter(|_| self.random.next(3) == 0).cloned().collect();
        let mut change = self.lake.change(table, small(10, 4_000)).await?;
        let (mut kept, mut new, mut expected) = (Vec::new(), Vec::new(), Changed::default());
        let (deletes, updates) = (self.random.next(2) == 0, self.random.next(4) > 0 && !updated.is_empty());
        for mut row in std::mem::take(&mut self.rows) {
            match self.random.next(6) {
                0 if deletes => {
                    change.delete(&[addrs[&id(&row)]]);
                    expected.num_deleted += 1;
                    continue;
                }
                1..=3 if updates => {
                    for field in &updated {
                        row.insert(field.name().clone(), self.random.value(field));
                    }
                    new.push(row.clone());
                }
                _ => {}
            }
            kept.push(row);
        }
        expected.num_updated = new.len() as u64;
        // The rows come in several batches, and in no order.
        new.reverse();
        for rows in new.chunks(9) {
            let row_addrs: Vec<u64> = rows.iter().map(|row| addrs[&id(row)]).collect();
            change.update(&row_addrs, &batch(&updated, rows.iter()))?;
        }
        let inserted: Vec<Row> = (0..self.random.next(8)).map(|_| self.new_row(&fields)).collect();
        expected.num_inserted = inserted.len() as u64;
        if !inserted.is_empty() {
            change.insert(&batch(&fields, inserted.iter())).await?;
        }
        kept.extend(inserted);
        self.rows = kept;
        let changed = change.commit(None, &ChangeNote::default()).await?;
        let has_rows = (expected.num_deleted, expected.num_updated, expected.num_inserted) != (0, 0, 0);
        expected.version = table.version() + u64::from(has_rows);
        assert_eq!(changed, expected);
        Ok(())
    }

    /// Adds a column: with values, or with nulls.
    pub async fn add_column(&mut self, table: &Table) -> TestResult {
        let name = format!("c{}", self.next_column);
        self.next_column += 1;
        let field = match self.random.next(4) {
            0 => Field::new(&name, DataType::Int64, false),
            1 => tensor(&name, DataType::UInt8, &[1_100]),
            2 => image_field(&name),
            _ => Field::new(&name, DataType::Utf8, true),
        };
        let are_null = field.is_nullable() && self.random.next(2) == 0;
        let mut columns = self.lake.add_columns(table, std::slice::from_ref(&field), small(10, 4_000)).await?;
        let mut values: HashMap<i64, Value> = HashMap::new();
        let mut rows = rows_of(table).await?;
        rows.sort_by_key(|(addr, _)| *addr);
        for rows in rows.chunks(7) {
            let addrs: Vec<u64> = rows.iter().map(|(addr, _)| *addr).collect();
            let new: Vec<Row> = rows.iter().map(|_| [(name.clone(), self.random.value(&field))].into()).collect();
            if !are_null {
                columns.write(&addrs, &batch(std::slice::from_ref(&field), new.iter())).await?;
            }
            values.extend(rows.iter().zip(new).map(|((_, row), new)| (id(row), new[&name].clone())));
        }
        assert_eq!(columns.commit(None, &ChangeNote::default()).await?, table.version() + 1);
        for row in &mut self.rows {
            let value = if are_null { Value::Null } else { values[&id(row)].clone() };
            row.insert(name.clone(), value);
        }
        Ok(())
    }

    pub async fn drop_column(&mut self, table: &Table) -> TestResult {
        let names: Vec<String> = table.schema().fields()[1..].iter().map(|field| field.name().clone()).collect();
        if names.len() < 3 {
            return Ok(());
        }
        let name = names[self.random.next(names.len())].clone();
        let version = self.lake.drop_columns(table, std::slice::from_ref(&name), &ChangeNote::default()).await?;
        assert_eq!(version, table.version() + 1);
        for row in &mut self.rows {
            row.remove(&name);
        }
        Ok(())
    }

    pub async fn rename_column(&mut self, table: &Table) -> TestResult {
        let index = 1 + self.random.next(table.schema().fields().len() - 1);
        let (old, new) = (table.schema().field(index).name().clone(), format!("r{}", self.next_column));
        self.next_column += 1;
        self.lake.rename_column(table, &old, &new, &ChangeNote::default()).await?;
        for row in &mut self.rows {
            let value = row.remove(&old).expect("the row has the column");
            row.insert(new.clone(), value);
        }
        Ok(())
    }
}
