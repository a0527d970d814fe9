//! A lake with one table, and how the tests execute statements.

use std::sync::{Arc, Mutex};

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::types::Float32Type;
use arrow_array::{ArrayRef, FixedSizeListArray, Int64Array, RecordBatch, StringArray};
use futures::TryStreamExt as _;
use stoker_lake::{CommitMode, LakeStore, StorageOptions, Table, WriteOptions};
use stoker_sql::{Engine, EngineOptions};
use stoker_types::{ErrorKind, SnapshotRef, StatementOutcome, StatementProgress, TableName};

use crate::{Result, execute};

/// The elements of a vector.
pub const DIMENSION: i32 = 8;

/// An engine whose lake has the table `samples`: `id`, `title`, `tags` and `emb`.
pub struct Fixture {
    pub engine: Engine,
    progress: Mutex<Vec<StatementProgress>>,
}

impl Fixture {
    pub async fn new(num_rows: i64) -> Self {
        let lake = LakeStore::open("memory://", &StorageOptions::default()).await.expect("a lake");
        let fixture = Self { engine: Engine::new(lake, EngineOptions::default()), progress: Mutex::default() };
        fixture.append(0..num_rows).await;
        fixture
    }

    pub async fn append(&self, ids: std::ops::Range<i64>) {
        let (lake, name) = (self.engine.lake(), table_name());
        let rows = rows(ids);
        let mut writer = lake.writer(&name, &rows.schema(), true, WriteOptions::default()).await.expect("a writer");
        writer.write(&rows).await.expect("rows");
        let (schema, drafts) = (writer.schema(), writer.finish().await.expect("fragments"));
        lake.commit(&name, &schema, CommitMode::CreateOrAppend, drafts, None).await.expect("a version");
    }

    pub async fn execute(&self, sql: &str) -> Result<StatementOutcome> {
        let sink = |progress| self.progress.lock().expect("no test panics here").push(progress);
        execute(&self.engine, sql, &[], &sink).await
    }

    /// Executes a statement that succeeds.
    pub async fn done(&self, sql: &str) -> StatementOutcome {
        self.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Executes a statement that fails with an error of this kind, whose message has these parts.
    pub async fn refuses(&self, sql: &str, kind: ErrorKind, parts: &[&str]) {
        let error = self.execute(sql).await.expect_err(sql);
        assert_eq!(error.kind(), kind, "{sql}: {error}");
        for part in parts {
            assert!(error.to_string().contains(part), "{sql}: {error}: {part}");
        }
    }

    /// The phases of all statements, in order, each once in a row.
    pub fn phases(&self) -> Vec<String> {
        let progress = self.progress.lock().expect("no test panics here");
        let mut phases: Vec<String> = progress.iter().map(|progress| progress.phase.clone()).collect();
        phases.dedup();
        phases
    }

    pub async fn table(&self) -> Table {
        self.engine.lake().table(&table_name(), &SnapshotRef::Latest).await.expect("the table")
    }

    /// Runs a query, and returns its rows.
    pub async fn rows(&self, sql: &str) -> Vec<RecordBatch> {
        let query = self.engine.query(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        query.execute().await.expect("rows").try_collect().await.expect("rows")
    }
}

fn table_name() -> TableName {
    TableName::try_new("samples").expect("a name")
}

/// Vectors that lie near 16 centres, so that an index has something to learn.
fn vector(id: i64) -> Vec<Option<f32>> {
    let noise = |element: i64| ((id * 31 + element * 17) % 97) as f32 / 970.0;
    (0..i64::from(DIMENSION)).map(|element| Some(((id * (element + 3)) % 16) as f32 + noise(element))).collect()
}

fn rows(ids: std::ops::Range<i64>) -> RecordBatch {
    let mut tags = ListBuilder::new(StringBuilder::new());
    for id in ids.clone() {
        tags.append_value([Some(format!("tag{}", id % 7)), Some("all".to_string())]);
    }
    let vectors = ids.clone().map(|id| Some(vector(id)));
    let columns: [(&str, ArrayRef); 4] = [
        ("id", Arc::new(Int64Array::from_iter_values(ids.clone()))),
        ("title", Arc::new(StringArray::from_iter_values(ids.map(|id| format!("the title of row {id}"))))),
        ("tags", Arc::new(tags.finish())),
        ("emb", Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(vectors, DIMENSION))),
    ];
    RecordBatch::try_from_iter(columns).expect("columns of the same length")
}
