//! Runs the scripts in `sql/slt` and the reference queries in `sql/queries` on a small lake: in this process, and the
//! scripts also through a server, with a client of Flight SQL. Each script has a lake of its own, which it may change.

#![expect(clippy::cast_possible_truncation, clippy::expect_used, reason = "it is a test")]

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{
    ArrayRef, FixedSizeListArray, Float32Array, Float64Array, Int64Array, RecordBatch, StringArray, UInt8Array,
};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_schema::{DataType, Field, Schema};
use futures::TryStreamExt as _;
use sqllogictest::{DB, DBOutput, DefaultColumnType, Runner};
use stoker::{Connection, LocalLake};
use stoker_columns::TensorType;
use stoker_dialect::is_change;
use stoker_lake::{CommitMode, LakeStore, StorageOptions, WriteOptions};
use stoker_sql::{Engine, EngineOptions, Error};
use stoker_tests::Server;
use stoker_types::{SnapshotRef, TableName, TagName};
use tokio::runtime::Runtime;
use tonic::transport::Channel;

const IMAGE_BYTES: usize = 40 * 40;
/// Reference queries that are intentionally plain SQL, no sample queries.
const PLAIN: [&str; 1] = ["class_balance"];

/// Where statements run.
trait Statements {
    async fn rows(&mut self, sql: &str) -> Result<Vec<RecordBatch>, String>;

    /// Executes a statement that changes the lake, and returns the number of rows that it tells, or 0.
    async fn change(&mut self, sql: &str) -> Result<u64, String>;
}

impl Statements for Engine {
    async fn rows(&mut self, sql: &str) -> Result<Vec<RecordBatch>, String> {
        collect(self, sql).await.map_err(|error| error.to_string())
    }

    async fn change(&mut self, sql: &str) -> Result<u64, String> {
        let connection = Connection::new(LocalLake::from(self.clone()));
        let outcome = connection.execute(sql, &[], &|_| {}).await.map_err(|error| error.to_string())?;
        Ok(outcome.num_rows.unwrap_or(0))
    }
}

impl Statements for FlightSqlServiceClient<Channel> {
    async fn rows(&mut self, sql: &str) -> Result<Vec<RecordBatch>, String> {
        let mut batches = Vec::new();
        let info = self.execute(sql.into(), None).await.map_err(|error| error.to_string())?;
        for ticket in info.endpoint.into_iter().filter_map(|endpoint| endpoint.ticket) {
            let answer = self.do_get(ticket).await.map_err(|error| error.to_string())?;
            batches.extend(answer.try_collect::<Vec<_>>().await.map_err(|error| error.to_string())?);
        }
        Ok(batches)
    }

    async fn change(&mut self, sql: &str) -> Result<u64, String> {
        let num_rows = self.execute_update(sql.into(), None).await.map_err(|error| error.to_string())?;
        Ok(u64::try_from(num_rows).unwrap_or(0))
    }
}

/// The message of a statement that failed.
#[derive(Debug)]
struct Failed(String);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

struct Database<S> {
    statements: S,
    runtime: Arc<Runtime>,
}

impl<S: Statements> DB for Database<S> {
    type Error = Failed;
    type ColumnType = DefaultColumnType;

    fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Failed> {
        if is_change(sql) {
            let num_rows = self.runtime.block_on(self.statements.change(sql)).map_err(Failed)?;
            return Ok(DBOutput::StatementComplete(num_rows));
        }
        let batches = self.runtime.block_on(self.statements.rows(sql)).map_err(Failed)?;
        let num_columns = batches.first().map_or(0, RecordBatch::num_columns);
        let rows = batches.iter().flat_map(shown).collect();
        Ok(DBOutput::Rows { types: vec![DefaultColumnType::Any; num_columns], rows })
    }

    fn engine_name(&self) -> &str {
        "stoker"
    }
}

async fn collect(engine: &Engine, sql: &str) -> Result<Vec<RecordBatch>, Error> {
    Ok(engine.query(sql, &[]).await?.execute().await?.try_collect().await?)
}

/// Returns the values of a batch as text, row by row.
fn shown(batch: &RecordBatch) -> Vec<Vec<String>> {
    let options = FormatOptions::default().with_null("NULL");
    let formatters: Vec<ArrayFormatter> = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column, &options).expect("a type that can be shown"))
        .collect();
    (0..batch.num_rows()).map(|row| formatters.iter().map(|shown| shown.value(row).to_string()).collect()).collect()
}

fn list(item: DataType, length: usize, values: ArrayRef) -> ArrayRef {
    Arc::new(FixedSizeListArray::new(Arc::new(Field::new("item", item, true)), length as i32, values, None))
}

fn points(ids: std::ops::Range<i64>) -> RecordBatch {
    let item = |data_type| Arc::new(Field::new("item", data_type, true));
    let image = TensorType { element: DataType::UInt8, shape: vec![1, 40, 40] }.to_field("image");
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("x", DataType::Int64, false),
        Field::new("y", DataType::Int64, false),
        Field::new("kind", DataType::Utf8, false),
        Field::new("note", DataType::Utf8, true),
        Field::new("emb", DataType::FixedSizeList(item(DataType::Float32), 2), false),
        image.with_data_type(DataType::FixedSizeList(item(DataType::UInt8), IMAGE_BYTES as i32)),
    ]);
    let emb = Float32Array::from_iter_values(ids.clone().flat_map(|id| [(id % 4) as f32, (id / 4) as f32]));
    let pixels = UInt8Array::from_iter_values(ids.clone().flat_map(|id| [id as u8; IMAGE_BYTES]));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(ids.clone())),
        Arc::new(Int64Array::from_iter_values(ids.clone().map(|id| id % 4))),
        Arc::new(Int64Array::from_iter_values(ids.clone().map(|id| id / 4))),
        Arc::new(StringArray::from_iter_values(ids.clone().map(|id| if id % 2 == 0 { "even" } else { "odd" }))),
        Arc::new(StringArray::from_iter(ids.map(|id| (id % 3 != 0).then(|| format!("n{id}"))))),
        list(DataType::Float32, 2, Arc::new(emb)),
        list(DataType::UInt8, IMAGE_BYTES, Arc::new(pixels)),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).expect("a valid batch")
}

fn kinds() -> RecordBatch {
    let columns: [(&str, ArrayRef); 2] = [
        ("kind", Arc::new(StringArray::from(vec!["even", "odd", "none"]))),
        ("weight", Arc::new(Float64Array::from(vec![1.5, 2.5, 0.5]))),
    ];
    RecordBatch::try_from_iter(columns).expect("a valid batch")
}

async fn write(lake: &LakeStore, name: &str, batch: RecordBatch) -> anyhow::Result<()> {
    let name = TableName::try_new(name)?;
    let options = WriteOptions { rows_per_fragment_max: 5, ..WriteOptions::default() };
    let mut writer = lake.writer(&name, &batch.schema(), true, options).await?;
    writer.write(&batch).await?;
    let drafts = writer.finish().await?;
    lake.commit(&name, &batch.schema(), CommitMode::CreateOrAppend, drafts, None).await?;
    Ok(())
}

async fn engine(uri: &str) -> anyhow::Result<Engine> {
    let lake = LakeStore::open(uri, &StorageOptions::default()).await?;
    write(&lake, "points", points(0..8)).await?;
    lake.table(&TableName::try_new("points")?, &SnapshotRef::Latest)
        .await?
        .create_tag(&TagName::try_new("v1")?)
        .await?;
    write(&lake, "points", points(8..12)).await?;
    write(&lake, "kinds", kinds()).await?;
    Ok(Engine::new(lake, EngineOptions::default()))
}

/// Returns the files of a folder in `sql`, sorted by name.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sql").join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files.sort();
    assert!(!files.is_empty(), "{} has no .{extension} files", folder.display());
    files
}

/// Runs a script.
fn run_script(path: &Path, statements: impl Statements + Clone + Send, runtime: &Arc<Runtime>) {
    let mut runner = Runner::new(|| {
        let database = Database { statements: statements.clone(), runtime: runtime.clone() };
        async move { Ok(database) }
    });
    runner.run_file(path).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn scripts() {
    let runtime = Arc::new(Runtime::new().expect("a runtime"));
    for path in files("slt", "slt") {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        let dir = tempfile::tempdir().expect("a folder");
        let lake = match name {
            // Branches name files of their tables, and files in memory have no names.
            "branches" => dir.path().to_str().expect("a path").to_string(),
            name => format!("memory://{name}"),
        };
        run_script(&path, runtime.block_on(engine(&lake)).expect("the lake"), &runtime);
    }
}

#[test]
fn scripts_through_flight_sql() {
    let runtime = Arc::new(Runtime::new().expect("a runtime"));
    for path in files("slt", "slt") {
        let dir = tempfile::tempdir().expect("a folder");
        let lake = dir.path().to_str().expect("a path");
        runtime.block_on(engine(lake)).expect("the lake");
        let server = Server::start(lake, "127.0.0.1:0", &["--allow-writes"]).expect("a server");
        let address = Channel::from_shared(server.address.replace("grpc://", "http://")).expect("an address");
        let channel = runtime.block_on(address.connect()).expect("a connection");
        run_script(&path, FlightSqlServiceClient::new(channel), &runtime);
    }
}

#[test]
fn reference_queries() {
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let engine = engine("memory://sqllogic").await.expect("the lake");
        for path in files("queries", "sql") {
            let sql = fs::read_to_string(&path).expect("a query");
            assert!(sql.starts_with("-- "), "{} begins with a comment", path.display());
            let batches = collect(&engine, &sql).await.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let num_rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
            assert!(num_rows > 0, "{} gives rows", path.display());
            let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
            match engine.sample(&sql, &[]).await {
                Ok(query) if !PLAIN.contains(&name) => {
                    let row_set = engine.row_set(&query).await.expect("a row set");
                    assert_eq!(row_set.num_rows(), num_rows as u64, "{}", path.display());
                }
                Ok(_) => panic!("{name} is a sample query"),
                Err(error) => assert!(PLAIN.contains(&name), "{name}: {error}"),
            }
        }
    });
}
