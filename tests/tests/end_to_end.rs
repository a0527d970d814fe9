//! Tests the whole path with the real binary: ingest, query, stream, serve, kill.

#![expect(clippy::cast_possible_truncation, reason = "tests know their numbers")]

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use stoker::{ClientOptions, ConnectOptions, Connection, StreamHandle, connect};
use stoker_tests::{Server, image_folder, run, run_failing};
use stoker_types::{BatchSize, Batching, LastBatch, ReadOptions, ShuffleMode, Slice, StreamOptions, Topology};

const QUERY: &str = "SELECT image, label, path FROM pictures";
const KEY: &str = "test:0123456789abcdef0123456789abcdef\n";

/// Starts a server over a lake, with the ticket key that all servers of these tests share.
fn serve(folder: &Path, lake: &str, listen: &str) -> Result<Server> {
    let file = folder.join("ticket-key");
    std::fs::write(&file, KEY)?;
    Server::start(lake, listen, &["--ticket-key-file", file.to_str().context("UTF-8")?])
}

/// Makes a lake with the table `pictures`: three classes of `per_class` images.
fn lake(folder: &Path, per_class: u8) -> Result<String> {
    let pictures = folder.join("pictures");
    image_folder(&pictures, per_class)?;
    let lake = folder.join("lake").to_str().context("UTF-8")?.to_string();
    run(&["ingest", "imagefolder", pictures.to_str().context("UTF-8")?, "pictures", "--lake", &lake, "--quiet"])?;
    Ok(lake)
}

async fn plan(connection: &Connection) -> Result<StreamHandle> {
    let options = StreamOptions { seed: 3, shuffle: ShuffleMode::Block, ..StreamOptions::default() };
    Ok(connection.plan_stream(QUERY, &[], &options).await?)
}

fn slice(rank: u32, world_size: u32) -> Slice {
    let batching = Batching { size: BatchSize::Global(21), last: LastBatch::Uneven };
    Slice::new(Topology { rank, world_size }, batching, 1)
}

/// Reads the batches of a slice.
async fn drain(handle: &StreamHandle, slice: Slice) -> Result<Vec<arrow_array::RecordBatch>> {
    let mut stream = handle.open(&slice, &ReadOptions::default()).await?;
    let mut batches = Vec::new();
    while let Some(batch) = stream.next().await? {
        batches.push(batch.data);
    }
    ensure!(batches.len() as u64 == slice.num_steps(handle.num_rows()) - slice.first_step);
    Ok(batches)
}

#[test]
fn images_become_a_dense_table_that_sql_and_streams_read() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let lake = lake(folder.path(), 20)?;
    ensure!(run(&["tables", "--lake", &lake])?.starts_with("pictures\tversion 1\t60 rows"));
    let csv = run(&[
        "sql",
        "SELECT label, count(*) AS n FROM pictures GROUP BY label ORDER BY label",
        "--format",
        "csv",
        "--lake",
        &lake,
    ])?;
    ensure!(csv == "label,n\n0,20\n1,20\n2,20\n", "{csv}");
    let described: serde_json::Value =
        serde_json::from_str(&run(&["describe", "pictures", "--json", "--lake", &lake])?)?;
    let image = described["columns"].as_array().context("columns")?.iter().find(|column| column["name"] == "image");
    let image = image.context("a column image")?;
    ensure!(image["dense"] == true && image["heavy"] == true && image["bytes_per_row"] == 1440, "{image}");
    let report: serde_json::Value =
        serde_json::from_str(&run(&["stream", QUERY, "--batch-size", "16", "--json", "--lake", &lake])?)?;
    ensure!(report["steps"] == 4 && report["rows"] == 60 && report["rows_in_epoch"] == 60, "{report}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn in_process_and_through_flight_give_identical_batches() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let lake = lake(folder.path(), 50)?;
    let local = plan(&connect(&lake, &ConnectOptions::default()).await?).await?;
    let server = serve(folder.path(), &lake, "127.0.0.1:0")?;
    for num_endpoints in [1, 2, 3] {
        let options = ClientOptions { num_endpoints, ..ClientOptions::default() }.into();
        let remote = plan(&connect(&server.address, &options).await?).await?;
        ensure!(remote.spec() == local.spec());
        for (rank, world) in [(0, 1), (1, 2), (2, 5)] {
            let (mine, theirs) = (drain(&local, slice(rank, world)).await?, drain(&remote, slice(rank, world)).await?);
            ensure!(mine == theirs, "rank {rank} of {world} over {num_endpoints} endpoints");
        }
    }
    let sql = "SELECT path, label FROM pictures WHERE label = 1 ORDER BY path";
    let mine = run(&["sql", sql, "--format", "csv", "--lake", &lake])?;
    ensure!(mine == run(&["sql", sql, "--format", "csv", "--server", &server.address])?);
    ensure!(server.terminate()?.success(), "SIGTERM ends a server cleanly");
    Ok(())
}

/// Returns a port that is free now. A fixed port is needed because both servers of a test must listen on the same one.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_and_replaced_server_loses_and_repeats_no_row() -> Result<()> {
    check_replacement(&format!("127.0.0.1:{}", free_port()?)).await?;
    let folder = tempfile::tempdir()?;
    check_replacement(&format!("unix://{}/socket", folder.path().display())).await
}

/// Kills and replaces a server twice during a stream, and checks that every row arrives exactly once.
async fn check_replacement(listen: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let lake = lake(folder.path(), 100)?;
    let mut server = serve(folder.path(), &lake, listen)?;
    let handle = plan(&connect(&server.address, &ConnectOptions::default()).await?).await?;
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut labels = [0; 3];
    let mut stream = handle.open(&slice(0, 1), &ReadOptions::default()).await?;
    let mut step = 0;
    while let Some(batch) = stream.next().await? {
        ensure!(batch.step == step, "step {step}");
        step += 1;
        if step == 2 || step == 6 {
            server.kill()?;
            server = serve(folder.path(), &lake, listen)?;
        }
        batch.data["path"]
            .as_string::<i32>()
            .iter()
            .flatten()
            .for_each(|path| *seen.entry(path.into()).or_default() += 1);
        batch.data["label"].as_primitive::<Int64Type>().values().iter().for_each(|label| labels[*label as usize] += 1);
    }
    ensure!(seen.len() == 300 && seen.values().all(|times| *times == 1), "{} paths", seen.len());
    ensure!(labels == [100; 3], "{labels:?}");
    Ok(())
}

#[test]
fn bad_input_names_what_and_where() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let lake = lake(folder.path(), 5)?;
    let server = serve(folder.path(), &lake, "127.0.0.1:0")?;
    let place = ["--lake", lake.as_str()];
    let served = ["--server", server.address.as_str()];
    for target in [place, served] {
        for (query, expected) in [
            ("SELECT image FROM nothing", "nothing"),
            ("SELECT colour FROM pictures", "colour"),
            ("SELECT image FROM pictures AT (TAG => 'v9')", "v9"),
            ("SELECT image FROM pictures AT (VERSION => 77)", "77"),
            ("SELEC image FROM pictures", "SELEC"),
            ("COPY pictures TO 'copy'", "only SELECT"),
        ] {
            for command in ["sql", "stream"] {
                let error = run_failing(&[command, query, target[0], target[1]])?;
                ensure!(error.contains(expected), "{command} {query} to {}: {error}", target[1]);
            }
        }
        let error = run_failing(&["stream", "SELECT count(image) FROM pictures", target[0], target[1]])?;
        ensure!(error.starts_with("error: "), "{error}");
    }
    let error = run_failing(&["sql", "SELECT 1", "--server", "grpc://127.0.0.1:1"])?;
    ensure!(error.contains("127.0.0.1:1"), "{error}");
    let error = run_failing(&[
        "tables",
        "--lake",
        "s3://bucket/lake",
        "--storage-option",
        "aws_endpoint=http://127.0.0.1:1",
        "--storage-option",
        "aws_access_key_id=a",
        "--storage-option",
        "aws_secret_access_key=hidden",
    ])?;
    ensure!(error.contains("127.0.0.1:1") && !error.contains("hidden"), "{error}");
    let error = run_failing(&["tables", "--lake", "ftp://host/lake"])?;
    ensure!(error.contains("ftp"), "{error}");
    ensure!(run(&["tables", "--lake", &lake])?.starts_with("pictures\tversion 1\t15 rows"), "the lake stays as it was");
    Ok(())
}
