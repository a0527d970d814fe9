//! A lake of small tables, and connections to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, UInt8Type};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Float32Array, Int64Array, ListArray, RecordBatch, StringArray, UInt8Array,
};
use arrow_schema::{DataType, Field, Schema};
use proptest::prelude::*;
use stoker::{ClientOptions, ConnectOptions, Connection, StreamHandle, connect};
use stoker_batch::Batch;
use stoker_columns::{TensorType, target_schema};
use stoker_lake::{CommitMode, LakeStore, StorageOptions, WriteOptions};
use stoker_types::{Snapshot, SnapshotRef, TableName};

use crate::tests::contracts::Transport;
use crate::tests::contracts::case::{Case, Condition, DAMAGED_ROWS, ENDPOINTS_MAX, NUM_ROWS, WEIGHTS};
use crate::tests::contracts::damage::{damage, draw_damage};
use crate::tests::contracts::kinds;
use crate::tests::fixture::{TestLake, TestServer, config, impatient};

/// Bytes of a tensor; more than 1 KiB, so that the column is heavy.
pub const WIDTH: usize = 1_100;

/// The columns that are not of `kinds.rs`.
const OWN_COLUMNS: [&str; 5] = ["x", "id", "label", "weight", "tokens"];

/// The most rows of a fragment; the larger tables have several fragments.
const FRAGMENT_ROWS: u64 = 300;

/// A lake with a table for each of [`NUM_ROWS`], or a damaged table for each of [`DAMAGED_ROWS`], with its connections.
pub struct Lab {
    local: Connection,
    /// The connections to the server, for one endpoint, two endpoints and so on; empty for tests in process.
    remote: Vec<Connection>,
    lake: LakeStore,
    /// The tensors of all ids.
    tensors: Vec<u8>,
    /// The ids of the damaged rows of each damaged table, by its number of rows.
    damaged: BTreeMap<i64, Vec<i64>>,
    _server: Option<TestServer>,
    _folder: TestLake,
}

/// A delivered row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// The index of the row's query in a mixture; 0 for a stream of one query.
    pub source: usize,
    pub id: i64,
}

impl Lab {
    pub async fn new(transport: Transport, condition: Condition) -> Self {
        let folder = TestLake::new(1).await;
        let lake = LakeStore::open(&folder.uri(), &StorageOptions::default()).await.expect("a lake");
        let mut damaged = BTreeMap::new();
        match condition {
            Condition::Sound => {
                for num_rows in NUM_ROWS {
                    write_table(&lake, condition, num_rows).await;
                }
            }
            Condition::Damaged => {
                for num_rows in DAMAGED_ROWS {
                    write_table(&lake, condition, num_rows).await;
                    let ids = draw_damage(num_rows);
                    damage(&lake, &condition.table(num_rows), &ids).await;
                    damaged.insert(num_rows, ids);
                }
            }
        }
        let mut remote = Vec::new();
        let mut server = None;
        if transport == Transport::OverFlight {
            let started = TestServer::start(&folder, config()).await;
            for num_endpoints in 1..=ENDPOINTS_MAX {
                let options = ConnectOptions::from(ClientOptions { num_endpoints, ..impatient() });
                remote.push(connect(&started.url(), &options).await.expect("a server"));
            }
            server = Some(started);
        }
        let num_ids = NUM_ROWS.into_iter().max().unwrap_or(0);
        let tensors = (0..num_ids).flat_map(tensor).collect();
        Self { local: folder.local().await, remote, lake, tensors, damaged, _server: server, _folder: folder }
    }

    /// Returns the connection to the engine in this process.
    pub fn local(&self) -> &Connection {
        &self.local
    }

    /// Returns the connection under test: to the engine in this process or to the server.
    pub fn connection(&self, num_endpoints: u32) -> &Connection {
        match self.remote.is_empty() {
            true => &self.local,
            false => &self.remote[num_endpoints as usize - 1],
        }
    }

    pub async fn plan(&self, case: &Case) -> stoker::Result<StreamHandle> {
        case.plan(self.connection(case.num_endpoints)).await
    }

    /// Returns the ids of the damaged rows of the damaged table with `table_rows` rows.
    pub fn damaged_ids(&self, table_rows: i64) -> &[i64] {
        self.damaged.get(&table_rows).map_or(&[], Vec::as_slice)
    }

    /// Returns the rows of a batch, padding included. Checks their bytes, and that exactly one table supplies each row,
    /// at the address of its id.
    pub fn rows(&self, batch: &Batch) -> Result<Vec<Row>, TestCaseError> {
        let ids = self.checked_ids(batch)?;
        let mut rows = Vec::with_capacity(ids.len());
        for (row, id) in ids.into_iter().enumerate() {
            let addrs = batch.row_addrs.iter().map(|addrs| addrs[row]).enumerate();
            let found: Vec<(usize, u64)> = addrs.filter(|(_, addr)| *addr != u64::MAX).collect();
            let source = found.first().map_or(0, |(source, _)| *source);
            prop_assert!(
                found == [(source, address(id))],
                "step {}: row {row} with id {id} comes from {found:x?}",
                batch.step
            );
            rows.push(Row { source, id });
        }
        Ok(rows)
    }

    /// Returns the ids of a batch's rows. Checks that each row, padding included, has the tensor, the label and the
    /// other values of its id.
    pub fn checked_ids(&self, batch: &Batch) -> Result<Vec<i64>, TestCaseError> {
        let ids = batch.data["id"].as_primitive::<Int64Type>().values().to_vec();
        let labels = batch.data["label"].as_string::<i32>();
        let tensors = batch.data["x"].as_fixed_size_list();
        for (row, id) in ids.iter().enumerate() {
            let start = usize::try_from(*id)? * WIDTH;
            let found = tensors.value(row);
            let found = &found.as_primitive::<UInt8Type>().values()[..];
            let expected = self.tensors.get(start..start + WIDTH);
            prop_assert!(expected == Some(found), "step {}: row {row} with id {id} has other bytes", batch.step);
            let found = labels.is_valid(row).then(|| labels.value(row).to_string());
            prop_assert!(found == label(*id), "step {}: row {row} with id {id} has label {found:?}", batch.step);
        }
        for (field, values) in batch.data.schema_ref().fields().iter().zip(batch.data.columns()) {
            if !OWN_COLUMNS.contains(&field.name().as_str()) {
                kinds::check_values(field.name(), field, values, &ids)?;
            }
        }
        Ok(ids)
    }

    /// Reads the ids that a table has at these addresses.
    pub async fn stored_ids(&self, snapshot: &Snapshot, addrs: &[u64]) -> stoker_lake::Result<Vec<i64>> {
        let table = self.lake.table(&snapshot.table, &SnapshotRef::Version(snapshot.version)).await?;
        let rows = table.take(&["id".to_string()], addrs).await?;
        Ok(rows["id"].as_primitive::<Int64Type>().values().to_vec())
    }
}

/// Returns the address of a row, which is the same in every table.
pub fn address(id: i64) -> u64 {
    let id = id as u64;
    ((id / FRAGMENT_ROWS) << 32) | (id % FRAGMENT_ROWS)
}

/// Returns the id of the row at an address.
pub fn id_at(address: u64) -> i64 {
    ((address >> 32) * FRAGMENT_ROWS + (address & u64::from(u32::MAX))) as i64
}

/// Returns the tokens of a row, which name it. Some rows have none, and a few have many.
pub fn tokens(id: i64) -> Vec<i32> {
    let length = if id % 50 == 49 { 300 } else { id * 7 % 40 };
    (0..length).map(|token| (id * 1_000 + token) as i32).collect()
}

/// Returns the tensor of a row; no two rows have the same tensor.
fn tensor(id: i64) -> impl Iterator<Item = u8> {
    let id = id.to_le_bytes();
    (0..WIDTH).map(move |at| id[at % id.len()] ^ at as u8)
}

fn label(id: i64) -> Option<String> {
    (id % 5 != 0).then(|| format!("class {}", id % 101))
}

/// Writes a table in pages and fragments so small that the larger tables have several.
async fn write_table(lake: &LakeStore, condition: Condition, num_rows: i64) {
    let name = TableName::try_new(condition.table(num_rows)).expect("a name");
    let x = TensorType { element: DataType::UInt8, shape: vec![WIDTH] }.to_field("x");
    let DataType::FixedSizeList(item, length) = x.data_type().clone() else { unreachable!("a tensor") };
    let id = Field::new("id", DataType::Int64, false);
    let weight = Field::new("weight", DataType::Float32, false);
    let tokens = Field::new("tokens", DataType::List(Arc::new(Field::new("item", DataType::Int32, true))), true);
    let mut fields = vec![x, id, Field::new("label", DataType::Utf8, true), weight, tokens];
    fields.extend(kinds::fields());
    let schema = Arc::new(Schema::new(fields));
    let options =
        WriteOptions { page_bytes: 40 * WIDTH, rows_per_fragment_max: FRAGMENT_ROWS, ..WriteOptions::default() };
    let target = target_schema(&schema, None).expect("codecs that fit their columns");
    let mut writer = lake.writer(&name, &target, false, options).await.expect("a writer");
    if num_rows > 0 {
        let values = UInt8Array::from_iter_values((0..num_rows).flat_map(tensor));
        let labels: Vec<Option<String>> = (0..num_rows).map(label).collect();
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(FixedSizeListArray::new(item, length, Arc::new(values), None)),
            Arc::new(Int64Array::from_iter_values(0..num_rows)),
            Arc::new(StringArray::from(labels)),
            Arc::new(Float32Array::from_iter_values((0..num_rows).map(|id| WEIGHTS[id as usize % WEIGHTS.len()]))),
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(
                (0..num_rows).map(|id| Some(self::tokens(id).into_iter().map(Some).collect::<Vec<_>>())),
            )),
        ];
        columns.extend(kinds::arrays(num_rows));
        writer.write(&RecordBatch::try_new(schema, columns).expect("a batch")).await.expect("written");
    }
    let schema = writer.schema();
    let drafts = writer.finish().await.expect("finished");
    lake.commit(&name, &schema, CommitMode::Create, drafts, None).await.expect("committed");
}
