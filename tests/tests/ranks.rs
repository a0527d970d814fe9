//! Runs ranks as processes of the real binary, and checks that they deliver every row exactly once, the same global
//! batches for any number of ranks, and the same bytes in process and through Flight, and that a job resumes at any
//! position.

#![expect(clippy::cast_possible_truncation, reason = "tests know their numbers")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use arrow::row::{RowConverter, SortField};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, FixedSizeListArray, Int64Array, RecordBatch, StringArray, UInt8Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use serde_json::Value;
use stoker::{ConnectOptions, connect};
use stoker_tests::{Server, run, stoker};
use stoker_types::{
    BatchSize, Batching, DigestBuilder, LastBatch, ReadOptions, ShuffleMode, Slice, StreamOptions, Topology,
};
use tempfile::TempDir;

/// The number of rows of the table.
const NUM_ROWS: i64 = 10_007;

/// The number of bytes of a row's tensor: over 1 KiB, so that the column is heavy.
const PAYLOAD: usize = 1_500;

const ROW_COUNTS: [i64; 5] = [0, 1, 7, 1000, NUM_ROWS];

const WORLD_SIZES: [u32; 5] = [1, 2, 3, 5, 8];

/// A lake with the table `rows`, and what the streams over it must deliver.
struct Fixture {
    folder: TempDir,
    lake: String,
    schema: SchemaRef,
    /// The id of the row at each address.
    ids: BTreeMap<u64, i64>,
    /// The number of jobs so far.
    jobs: Cell<u32>,
}

/// A line of a rank's log.
#[derive(Clone, Debug, PartialEq)]
struct Step {
    step: u64,
    position_after: u64,
    num_valid: usize,
    addrs: Vec<u64>,
    sha256: String,
}

/// The results of a rank that has exited.
struct Rank {
    steps: Vec<Step>,
    state: Value,
    receipt: PathBuf,
}

impl Fixture {
    /// Ingests two Parquet files with the binary, then reads them in process to learn the address of each row.
    async fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| Ok::<_, anyhow::Error>(folder.path().join(name).to_str().context("UTF-8")?.to_string());
        let (first, second, lake) = (path("first.parquet")?, path("second.parquet")?, path("lake")?);
        write_parquet(Path::new(&first), 0..4_000)?;
        write_parquet(Path::new(&second), 4_000..NUM_ROWS)?;
        let tensor = format!("payload=uint8[{PAYLOAD}]");
        run(&["ingest", "parquet", &first, &second, "rows", "--tensor", &tensor, "--lake", &lake, "--quiet"])?;
        let (schema, ids) = stored(&lake).await?;
        ensure!(
            ids.values().copied().eq(0..NUM_ROWS),
            "{} rows are stored, or not in the order of the files",
            ids.len()
        );
        Ok(Self { folder, lake, schema, ids, jobs: Cell::new(0) })
    }

    /// Runs all ranks of a job concurrently, each in a process, and checks their batches against the ingested rows.
    fn job(&self, place: [&str; 2], num_rows: i64, world_size: u32, more: &[&str]) -> Result<Vec<Rank>> {
        let query = format!("SELECT id, name, payload FROM rows WHERE id < {num_rows}");
        let world = world_size.to_string();
        let mut running = Vec::new();
        for rank in 0..world_size {
            let log = self.folder.path().join(format!("rank{rank}.jsonl"));
            let receipt = self.folder.path().join(format!("receipt{rank}of{world}-{num_rows}-{}", self.jobs.get()));
            let rank = rank.to_string();
            let mut command =
                stoker(&["stream", &query, "--rank", &rank, "--world-size", &world, "--seed", "5", "--json"]);
            command
                .args(place)
                .args(more)
                .arg("--log")
                .arg(&log)
                .arg("--receipt")
                .arg(&receipt)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            running.push((command.spawn()?, log, receipt));
        }
        let mut ranks = Vec::new();
        self.jobs.set(self.jobs.get() + 1);
        for (process, log, receipt) in running {
            let output = process.wait_with_output()?;
            ensure!(output.status.success(), "a rank failed: {}", String::from_utf8_lossy(&output.stderr));
            let report: Value = serde_json::from_slice(&output.stdout)?;
            let steps: Vec<Step> = std::fs::read_to_string(log)?.lines().map(Step::parse).collect::<Result<_>>()?;
            for step in &steps {
                ensure!(
                    step.sha256 == self.digest(&step.addrs)?,
                    "step {} of world size {world}: other bytes",
                    step.step
                );
            }
            ranks.push(Rank { steps, state: report["state"].clone(), receipt });
        }
        Ok(ranks)
    }

    fn local(&self) -> [&str; 2] {
        ["--lake", &self.lake]
    }

    /// Returns the digest of a batch of the rows at these addresses, computed from the ingested rows.
    fn digest(&self, addrs: &[u64]) -> Result<String> {
        let ids: Option<Vec<i64>> = addrs.iter().map(|addr| self.ids.get(addr).copied()).collect();
        let batch = rows(&ids.context("an address outside the table")?, &self.schema)?;
        let fields = self.schema.fields().iter().map(|field| SortField::new(field.data_type().clone())).collect();
        let mut digest = DigestBuilder::new("stoker.batch.v1");
        let rows = RowConverter::new(fields)?.convert_columns(batch.columns())?;
        rows.iter().for_each(|row| digest.update(row.as_ref()));
        Ok(digest.finish().to_string())
    }

    /// Checks that the valid rows of all steps have the ids `0..num_rows`, each exactly once.
    fn ensure_exactly_once<'a>(&self, steps: impl Iterator<Item = &'a Step>, num_rows: i64) -> Result<()> {
        let mut ids: Vec<i64> =
            steps.flat_map(|step| &step.addrs[..step.num_valid]).map(|addr| self.ids[addr]).collect();
        ids.sort_unstable();
        ensure!(ids.iter().copied().eq(0..num_rows), "{} rows in place of {num_rows}, or not each once", ids.len());
        Ok(())
    }
}

impl Step {
    fn parse(line: &str) -> Result<Self> {
        let line: Value = serde_json::from_str(line)?;
        let number = |name: &str| line[name].as_u64().with_context(|| format!("{name} in {line}"));
        let addrs = line["row_addrs"][0].as_array().context("row_addrs")?.iter().map(Value::as_u64);
        Ok(Self {
            step: number("step")?,
            position_after: number("position_after")?,
            num_valid: number("num_valid")? as usize,
            addrs: addrs.collect::<Option<_>>().context("row_addrs")?,
            sha256: line["sha256"].as_str().context("sha256")?.into(),
        })
    }
}

/// Returns the rows of these ids; a row is a function of its id.
fn rows(ids: &[i64], schema: &SchemaRef) -> Result<RecordBatch> {
    let payload = |id: i64| (0..PAYLOAD).map(move |index| (id as usize * 31 + index * (1 + id as usize % 7)) as u8);
    let bytes: ArrayRef = Arc::new(UInt8Array::from_iter_values(ids.iter().copied().flat_map(payload)));
    let names: Vec<Option<String>> = ids.iter().map(|id| (id % 5 != 0).then(|| format!("row {id}"))).collect();
    let DataType::FixedSizeList(item, _) = schema.field(2).data_type() else { anyhow::bail!("{schema} has no tensor") };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(ids.to_vec())),
        Arc::new(StringArray::from(names)),
        Arc::new(FixedSizeListArray::try_new(item.clone(), PAYLOAD as i32, bytes, None)?),
    ];
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

fn write_parquet(path: &Path, ids: Range<i64>) -> Result<()> {
    let item = Arc::new(Field::new("item", DataType::UInt8, false));
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
        Field::new("payload", DataType::FixedSizeList(item, PAYLOAD as i32), false),
    ]));
    let mut writer = ArrowWriter::try_new(File::create(path)?, schema.clone(), None)?;
    writer.write(&rows(&ids.collect::<Vec<_>>(), &schema)?)?;
    writer.close()?;
    Ok(())
}

/// Returns the schema of the streams' batches, and the id at each address of the table; checks the other columns.
async fn stored(lake: &str) -> Result<(SchemaRef, BTreeMap<u64, i64>)> {
    let connection = connect(lake, &ConnectOptions::default()).await?;
    let options = StreamOptions { shuffle: ShuffleMode::Sequential, ..StreamOptions::default() };
    let handle = connection.plan_stream("SELECT id, name, payload FROM rows", &[], &options).await?;
    let batching = Batching { size: BatchSize::PerRank(999), last: LastBatch::Uneven };
    let slice = Slice::new(Topology { rank: 0, world_size: 1 }, batching, 0);
    let mut stream = handle.open(&slice, &ReadOptions::default()).await?;
    let mut ids = BTreeMap::new();
    while let Some(batch) = stream.next().await? {
        let stored = batch.data["id"].as_primitive::<Int64Type>().values();
        ensure!(batch.data == rows(stored, &handle.schema())?, "rows differ from what was ingested");
        ids.extend(batch.row_addrs[0].iter().copied().zip(stored.iter().copied()));
    }
    Ok((handle.schema(), ids))
}

/// Runs `stoker verify`; returns whether the receipts prove exactly-once delivery, and the output.
fn verify(place: [&str; 2], receipts: &[&Path]) -> Result<(bool, String)> {
    let output = stoker(&["verify"]).args(place).args(receipts).output()?;
    let text = String::from_utf8(output.stdout)? + &String::from_utf8_lossy(&output.stderr);
    ensure!(!text.contains("panicked") && matches!(output.status.code(), Some(0 | 1)), "{text}");
    Ok((output.status.success(), text))
}

/// Returns the addresses of global batch `step` in order of position. Row k of rank r has position r + k·W, counted
/// from the start of the job, where W is the number of ranks.
fn global_batch(ranks: &[Rank], step: usize) -> Vec<u64> {
    let before = |rank: &Rank| rank.steps[..step].iter().map(|step| step.num_valid).sum::<usize>();
    let world = ranks.len();
    let mut placed: Vec<(usize, u64)> = Vec::new();
    for (rank, run) in ranks.iter().enumerate() {
        let step = &run.steps[step];
        let valid = step.addrs[..step.num_valid].iter().enumerate();
        placed.extend(valid.map(|(index, addr)| (rank + (before(run) + index) * world, *addr)));
    }
    placed.sort_unstable();
    placed.into_iter().map(|(_, addr)| addr).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_deliver_every_row_exactly_once() -> Result<()> {
    let fixture = Fixture::new().await?;
    for num_rows in ROW_COUNTS {
        for world_size in WORLD_SIZES {
            for (batch_size, policy) in [("3", "pad"), ("64", "uneven"), ("3000", "pad")] {
                let batching = ["--batch-size", batch_size, "--last-batch", policy];
                let ranks = fixture.job(fixture.local(), num_rows, world_size, &batching)?;
                let named = format!("{num_rows} rows, {world_size} ranks, batches of {batch_size}");
                fixture
                    .ensure_exactly_once(ranks.iter().flat_map(|rank| &rank.steps), num_rows)
                    .context(named.clone())?;
                let steps = (num_rows as u64).div_ceil(u64::from(world_size) * batch_size.parse::<u64>()?);
                ensure!(ranks.iter().all(|rank| rank.steps.len() as u64 == steps), "{named}: steps are not equal");
                let full = |rank: &Rank| rank.steps.iter().all(|step| step.addrs.len().to_string() == batch_size);
                ensure!(policy == "uneven" || ranks.iter().all(full), "{named}: a batch is not padded");
                ensure!(ranks.iter().all(|rank| rank.state == ranks[0].state), "{named}: states differ");
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn global_batches_are_the_same_on_any_number_of_ranks() -> Result<()> {
    let fixture = Fixture::new().await?;
    let server = Server::start(&fixture.lake, "127.0.0.1:0", &[])?;
    for place in [fixture.local(), ["--server", &server.address]] {
        let batching = ["--global-batch-size", "97", "--last-batch", "uneven"];
        let alone = fixture.job(place, 1_000, 1, &batching)?;
        for world_size in [2, 4, 7] {
            let ranks = fixture.job(place, 1_000, world_size, &batching)?;
            for (step, expected) in alone[0].steps.iter().enumerate() {
                let found = global_batch(&ranks, step);
                ensure!(found == expected.addrs, "{world_size} ranks: global batch {step} has other rows");
            }
            ensure!(ranks.iter().all(|rank| rank.steps.len() == 11), "steps are not equal");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_resumes_at_every_position_on_another_number_of_ranks() -> Result<()> {
    const ROWS: i64 = 17;
    let fixture = Fixture::new().await?;
    let place = fixture.local();
    for position in 0..=ROWS {
        let stop = position.to_string();
        let one_row = ["--global-batch-size", "1", "--last-batch", "uneven", "--max-batches", &stop];
        let interrupted = fixture.job(place, ROWS, 3, &one_row)?;
        let state = &interrupted[0].state;
        ensure!(state["position"] == position && interrupted.iter().all(|rank| rank.state == *state), "{state}");
        ensure!(state.to_string().len() < 1024, "{state}");
        let onward = ["--batch-size", "2", "--state", &state.to_string()];
        let resumed = fixture.job(place, ROWS, 2, &onward)?;
        if position == ROWS {
            // The epoch has ended, so that the job resumes with the next one.
            ensure!(resumed[0].state["epoch"] == 1, "{}", resumed[0].state);
            for job in [&interrupted, &resumed] {
                fixture.ensure_exactly_once(job.iter().flat_map(|rank| &rank.steps), ROWS)?;
            }
            continue;
        }
        let both = interrupted.iter().chain(&resumed).flat_map(|rank| &rank.steps);
        fixture.ensure_exactly_once(both, ROWS).with_context(|| format!("interrupted at {position}"))?;
        let receipts: Vec<&Path> = interrupted.iter().chain(&resumed).map(|rank| rank.receipt.as_path()).collect();
        ensure!(verify(place, &receipts)?.0, "the receipts of a job interrupted at {position}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_get_identical_bytes_in_process_and_through_flight() -> Result<()> {
    let fixture = Fixture::new().await?;
    let server = Server::start(&fixture.lake, "127.0.0.1:0", &[])?;
    for (num_rows, world_size, batch_size) in
        [(0, 2, "4"), (1, 3, "1"), (7, 2, "2"), (1_000, 3, "50"), (NUM_ROWS, 5, "256")]
    {
        let batching = ["--batch-size", batch_size];
        let local = fixture.job(fixture.local(), num_rows, world_size, &batching)?;
        let served = fixture.job(["--server", &server.address], num_rows, world_size, &batching)?;
        for (local, served) in local.iter().zip(&served) {
            ensure!(local.steps == served.steps && local.state == served.state, "{num_rows} rows, {world_size} ranks");
        }
        fixture.ensure_exactly_once(served.iter().flat_map(|rank| &rank.steps), num_rows)?;
        let receipts: Vec<&Path> = served.iter().map(|rank| rank.receipt.as_path()).collect();
        for place in [fixture.local(), ["--server", &server.address]] {
            ensure!(num_rows == 0 || verify(place, &receipts)?.0, "{num_rows} rows, {world_size} ranks");
            let (sound, text) = verify(place, &receipts[1..])?;
            ensure!(!sound && (num_rows < 2 || text.contains("missing")), "a receipt is not there: {text}");
        }
    }
    Ok(())
}
