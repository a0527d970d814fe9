//! Tests `stoker doctor` with the real binary: verdicts, findings, and a finding that disappears after its remedy.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use arrow_array::types::Float32Type;
use arrow_array::{ArrayRef, Int64Array, ListArray, RecordBatch};
use parquet::arrow::ArrowWriter;
use serde_json::Value;
use stoker_tests::{Server, image_folder, run, run_failing};

/// The number of elements of each list.
const LENGTH: usize = 400;

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("UTF-8")
}

/// Writes a Parquet file with the columns `id` and `x`; `x` holds lists of one length.
fn lists(path: &Path) -> Result<()> {
    let list = |row: usize| Some((0..LENGTH).map(move |item| Some((row * LENGTH + item) as f32 * 1.7)));
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..50));
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>((0..50).map(list)));
    let batch = RecordBatch::try_from_iter([("id", ids), ("x", lists)])?;
    let mut writer = ArrowWriter::try_new(File::create(path)?, batch.schema(), None)?;
    writer.write(&batch)?;
    writer.close()?;
    Ok(())
}

/// Returns the answer of `stoker doctor` as JSON.
fn diagnosis(table: &str, place: [&str; 2]) -> Result<Value> {
    Ok(serde_json::from_str(&run(&["doctor", table, "--json", place[0], place[1]])?)?)
}

/// Returns the verdict on a column.
fn verdict<'a>(diagnosis: &'a Value, column: &str) -> Result<&'a str> {
    let columns = diagnosis["columns"].as_array().context("columns")?;
    let column = columns.iter().find(|found| found["name"] == column).context("the column")?;
    column["verdict"].as_str().context("a verdict")
}

/// Returns the columns and codes of all findings.
fn codes(diagnosis: &Value) -> Result<Vec<(&str, &str)>> {
    let mut codes = Vec::new();
    for finding in diagnosis["findings"].as_array().context("findings")? {
        codes.push((finding["column"].as_str().unwrap_or("table"), finding["code"].as_str().context("a code")?));
    }
    Ok(codes)
}

#[test]
fn images_are_judged_the_same_here_and_through_a_server() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (pictures, lake) = (folder.path().join("pictures"), folder.path().join("lake"));
    image_folder(&pictures, 5)?;
    let (pictures, lake) = (text(&pictures)?, text(&lake)?);
    let ingest = ["ingest", "imagefolder", pictures, "pictures", "--images", "both", "--quiet", "--lake", lake];
    run(&ingest)?;
    let mut append = ingest.to_vec();
    append.extend(["--mode", "append", "--again"]);
    run(&append)?;
    let server = Server::start(lake, "127.0.0.1:0", &[])?;
    let (local, served) = (["--lake", lake], ["--server", server.address.as_str()]);
    for place in [local, served] {
        let found = diagnosis("pictures", place)?;
        ensure!((verdict(&found, "image")?, verdict(&found, "image_bytes")?) == ("dense", "decoder"), "{found:#}");
        ensure!(verdict(&found, "label")? == "light", "{found:#}");
        ensure!(codes(&found)? == [("image_bytes", "variable_width")], "{found:#}");
        ensure!(found == diagnosis("pictures", local)?);
        for (at, first_line) in [("1", "pictures version 1, 15 rows"), ("2", "pictures version 2, 30 rows")] {
            let said = run(&["doctor", "pictures", "--version", at, place[0], place[1]])?;
            let lines: Vec<&str> = said.lines().collect();
            ensure!(lines[0] == first_line && lines[1].starts_with("column "), "{said}");
            let dense = lines.iter().find(|line| line.starts_with("image ")).context("the column")?;
            ensure!(dense.contains("tensor uint8[3, 20, 24]  1440") && dense.ends_with("dense"), "{said}");
            ensure!(said.contains("\ncolumn image_bytes [variable_width]: "), "{said}");
            ensure!(said.contains("\n  costs: ") && said.contains("\n  do this: nothing, if "), "{said}");
        }
        let error = run_failing(&["doctor", "nothing", place[0], place[1]])?;
        ensure!(error.contains("table nothing in"), "{error}");
    }
    Ok(())
}

#[test]
fn lists_become_dense_by_the_command_that_is_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (file, lake) = (folder.path().join("lists.parquet"), folder.path().join("lake"));
    lists(&file)?;
    let (file, place) = (text(&file)?, ["--lake", text(&lake)?]);
    run(&["ingest", "parquet", file, "lists", "--quiet", place[0], place[1]])?;
    let found = diagnosis("lists", place)?;
    ensure!(verdict(&found, "x")? == "light" && codes(&found)? == [("x", "lists")], "{found:#}");
    let remedy = found["findings"][0]["remedy"].as_str().context("a remedy")?;
    let (_, named) = remedy.split_once("stoker ").context("a command")?;
    let named = named.replace("FILES", file).replace("LENGTH", &LENGTH.to_string());
    let mut words: Vec<&str> = named.split(' ').collect();
    words.extend(["--again", "--quiet", place[0], place[1]]);
    run(&words)?;
    let found = diagnosis("lists", place)?;
    ensure!(verdict(&found, "x")? == "dense" && codes(&found)?.is_empty(), "{found:#}");
    let said = run(&["doctor", "lists", place[0], place[1]])?;
    ensure!(said.ends_with("\nnothing costs speed or safety here\n"), "{said}");
    Ok(())
}
