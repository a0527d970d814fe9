//! Lakes and servers for tests.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, Int64Array, RecordBatch, StringArray, UInt8Array};
use arrow_schema::{DataType, Field, Schema};
use stoker::{ClientOptions, ConnectOptions, Connection, Result, SampleStream, StreamHandle, connect};
use stoker_batch::Batch;
use stoker_columns::TensorType;
use stoker_lake::{CommitMode, LakeStore, StorageOptions, WriteOptions};
use stoker_sql::{Engine, EngineOptions};
use stoker_types::{BatchSize, Batching, LastBatch, ShuffleMode, Slice, StreamOptions, TableName, Topology};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::{ServerConfig, TicketKey, serve};

/// Bytes of a tensor; more than 1 KiB, so that the column is heavy.
pub const WIDTH: usize = 1_100;

/// The query of most tests: a tensor, a number, text and a column with nulls.
pub const ALL: &str = "SELECT x, id, name, score FROM t";

/// Runs a test on a runtime.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime").block_on(future)
}

/// A lake in a temporary folder of its own.
pub struct TestLake {
    folder: TempDir,
}

impl TestLake {
    /// Creates a lake with table `t` of `num_rows` rows.
    pub async fn new(num_rows: i64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let lake = Self { folder };
        lake.write(0..num_rows, CommitMode::Create).await;
        lake
    }

    pub fn uri(&self) -> String {
        self.folder.path().to_str().expect("UTF-8").to_string()
    }

    pub async fn engine(&self) -> Engine {
        let lake = LakeStore::open(&self.uri(), &StorageOptions::default()).await.expect("a lake");
        Engine::new(lake, EngineOptions::default())
    }

    /// Connects to the lake in this process, without a server.
    pub async fn local(&self) -> Connection {
        connect(&self.uri(), &ConnectOptions::default()).await.expect("a lake")
    }

    pub async fn write(&self, ids: Range<i64>, mode: CommitMode) {
        let lake = LakeStore::open(&self.uri(), &StorageOptions::default()).await.expect("a lake");
        write(&lake, ids, mode).await;
    }
}

/// Creates an engine over table `t` of `num_rows` rows, in a lake that is not a local folder.
pub async fn distant_engine(num_rows: i64) -> Engine {
    let lake = LakeStore::open("memory://", &StorageOptions::default()).await.expect("a lake");
    write(&lake, 0..num_rows, CommitMode::Create).await;
    Engine::new(lake, EngineOptions::default())
}

/// Writes rows of table `t` whose columns are functions of their ids.
async fn write(lake: &LakeStore, ids: Range<i64>, mode: CommitMode) {
    let name = TableName::try_new("t").expect("a name");
    let tensor = TensorType { element: DataType::UInt8, shape: vec![WIDTH] }.to_field("x");
    let DataType::FixedSizeList(item, length) = tensor.data_type().clone() else { unreachable!("a tensor") };
    let values =
        UInt8Array::from_iter_values(ids.clone().flat_map(|id| (0..WIDTH).map(move |at| (id * 13) as u8 ^ at as u8)));
    let scores = Float32Array::from_iter(ids.clone().map(|id| (id % 3 != 0).then_some(id as f32)));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(FixedSizeListArray::new(item, length, Arc::new(values), None)),
        Arc::new(Int64Array::from_iter_values(ids.clone())),
        Arc::new(StringArray::from_iter_values(ids.clone().map(|id| format!("row {id}")))),
        Arc::new(scores),
    ];
    let schema = Arc::new(Schema::new(vec![
        tensor,
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, false),
        Field::new("score", DataType::Float32, true),
    ]));
    let options = WriteOptions { page_bytes: 40 * WIDTH, rows_per_fragment_max: 300, ..WriteOptions::default() };
    let append = matches!(mode, CommitMode::Append);
    let mut writer = lake.writer(&name, &schema, append, options).await.expect("a writer");
    writer.write(&RecordBatch::try_new(schema, columns).expect("a batch")).await.expect("written");
    let schema = writer.schema();
    let drafts = writer.finish().await.expect("finished");
    lake.commit(&name, &schema, mode, drafts, None).await.expect("committed");
}

/// Returns the settings of a server for tests: any free port, and messages so small that a batch needs several.
pub fn config() -> ServerConfig {
    let key = TicketKey { id: "test".into(), secret: "a secret of enough bytes".into() };
    ServerConfig {
        listen: vec!["127.0.0.1:0".into()],
        ticket_keys: vec![key],
        message_bytes: 4 << 10,
        grace_secs: 0,
        ..ServerConfig::default()
    }
}

/// A server on threads of its own, so that a test can kill it at any moment.
pub struct TestServer {
    /// The first address on which the server listens: host and port, or a path.
    pub address: String,
    urls: Vec<String>,
    runtime: Option<Runtime>,
    stop: Option<oneshot::Sender<()>>,
    done: Option<JoinHandle<Result<()>>>,
}

impl TestServer {
    pub async fn start(lake: &TestLake, config: ServerConfig) -> Self {
        Self::start_with(lake.engine().await, config).await
    }

    pub async fn start_with(engine: Engine, config: ServerConfig) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let (ready, urls) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move {
            stopped.await.ok();
        };
        let ready = |urls: &[String]| ready.send(urls.to_vec()).expect("the test waits");
        let done = runtime.spawn(serve(engine, config, ready, shutdown));
        let urls = urls.await.expect("a server that starts");
        let (_, address) = urls[0].split_once("://").expect("a URL");
        Self { address: address.to_string(), urls, runtime: Some(runtime), stop: Some(stop), done: Some(done) }
    }

    pub fn url(&self) -> String {
        self.urls[0].clone()
    }

    /// Returns the URLs of all addresses on which the server listens.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Kills the server: its connections break without notice.
    pub fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// Asks the server to stop, and waits until it has stopped.
    pub async fn stop(&mut self) {
        self.stop.take().expect("a server that runs").send(()).expect("a server that runs");
        self.done.take().expect("a server that runs").await.expect("no panic").expect("no error");
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Options of a connection that does not retry.
pub fn impatient() -> ClientOptions {
    ClientOptions { retry_budget: std::time::Duration::ZERO, ..ClientOptions::default() }
}

pub fn options() -> StreamOptions {
    StreamOptions {
        seed: 7,
        shuffle: ShuffleMode::Block,
        shuffle_window_bytes: Some(400 << 10),
        block_bytes: 8 << 10,
        num_lanes: 12,
        order_version: Some(1),
        weight: None,
        pack: None,
        bucket: None,
    }
}

pub fn slice(rank: u32, world_size: u32, size: BatchSize, last: LastBatch) -> Slice {
    Slice::new(Topology { rank, world_size }, Batching { size, last }, 0)
}

/// Reads all batches of a slice.
pub async fn drain(handle: &StreamHandle, slice: &Slice) -> Vec<Batch> {
    rest(handle.open(slice, &Default::default()).await.expect("a stream")).await
}

/// Reads the remaining batches of a stream.
pub async fn rest(mut stream: SampleStream) -> Vec<Batch> {
    let mut batches = Vec::new();
    while let Some(batch) = stream.next().await.expect("a batch") {
        batches.push(batch);
    }
    batches
}

/// Checks that two streams delivered equal batches, including the schema and the row addresses.
pub fn assert_same(found: &[Batch], expected: &[Batch]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.step, expected.step);
        assert_eq!(found.cursor, expected.cursor);
        assert_eq!(found.num_valid, expected.num_valid);
        assert_eq!(found.row_addrs, expected.row_addrs);
        assert_eq!(found.data, expected.data);
    }
}
