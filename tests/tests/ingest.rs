//! Tests `stoker ingest SOURCE… TABLE` with the real binary: what it recognises, writes, refuses and resumes.

use std::fmt::Write;
use std::fs::{File, create_dir_all, write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use stoker_tests::{image_folder, run, run_failing, stoker};

/// The number of files, and of rows in each, of the ingest that is killed.
const NUM_FILES: usize = 24;
const ROWS_PER_FILE: usize = 20_000;

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("UTF-8")
}

/// Runs the binary, and returns what it printed to standard output and to standard error.
fn run_both(args: &[&str]) -> Result<(String, String)> {
    let output = stoker(args).output()?;
    let (out, err) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    ensure!(output.status.success(), "stoker {args:?} failed: {err}");
    Ok((out, err))
}

/// Writes a Parquet file with a column `id` of 0 to 9.
fn parquet_file(path: &Path) -> Result<()> {
    create_dir_all(path.parent().context("a folder")?)?;
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10));
    let batch = RecordBatch::try_from_iter([("id", ids)])?;
    let mut writer = ArrowWriter::try_new(File::create(path)?, batch.schema(), None)?;
    writer.write(&batch)?;
    writer.close()?;
    Ok(())
}

/// Returns the only value of a query.
fn value(lake: &str, sql: &str) -> Result<String> {
    let printed = run(&["sql", sql, "--format", "csv", "--lake", lake])?;
    Ok(printed.lines().nth(1).context("a row")?.to_string())
}

#[test]
fn class_folders_and_parquet_files_are_recognised() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (pictures, data, lake) = (folder.path().join("pictures"), folder.path().join("data"), folder.path().join("l"));
    image_folder(&pictures, 5)?;
    write(pictures.join("notes.txt"), "text")?;
    parquet_file(&data.join("deep/a.parquet"))?;
    let (pictures, data, lake) = (text(&pictures)?, text(&data)?, text(&lake)?);
    let (out, err) = run_both(&["ingest", pictures, "pictures", "--size", "8", "--lake", lake])?;
    ensure!(err.starts_with("found: imagefolder, 15 files, "), "{err}");
    ensure!(err.contains("1 file with another ending was left out: .txt 1"), "{err}");
    ensure!(out.starts_with("table pictures: version 1, 15 rows from 15 files"), "{out}");
    let (out, err) = run_both(&["ingest", data, "rows", "--columns", "id", "--lake", lake])?;
    ensure!(err.starts_with("found: parquet, 1 files, "), "{err}");
    ensure!(out.starts_with("table rows: version 1, 10 rows from 1 files"), "{out}");
    let (out, _) = run_both(&["ingest", data, "rows", "--mode", "append", "--quiet", "--lake", lake])?;
    ensure!(out.contains("contains these sources already"), "{out}");
    // The commands that name a kind write the same, so that nothing is written again.
    let out = run(&["ingest", "parquet", data, "rows", "--mode", "append", "--quiet", "--lake", lake])?;
    ensure!(out.contains("contains these sources already"), "{out}");
    Ok(())
}

#[test]
fn a_path_that_is_named_like_a_kind_is_written_with_a_dot() -> Result<()> {
    let folder = tempfile::tempdir()?;
    parquet_file(&folder.path().join("parquet/a.parquet"))?;
    let output = stoker(&["ingest", "./parquet", "rows", "--lake", "lake"]).current_dir(folder.path()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    ensure!(String::from_utf8(output.stdout)?.starts_with("table rows: version 1, 10 rows"));
    let before = run_failing(&["ingest", "--mode", "append", "parquet", "x", "t", "--lake", "l"])?;
    ensure!(before.contains("arguments stand before the name of a kind of source"), "{before}");
    Ok(())
}

#[test]
fn a_dry_run_writes_nothing_and_needs_no_lake() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let pictures = folder.path().join("pictures");
    image_folder(&pictures, 5)?;
    write(pictures.join("class0/bad.png"), "text")?;
    write(pictures.join("notes.txt"), "text")?;
    let dry = ["ingest", text(&pictures)?, "pictures", "--dry-run", "--on-error", "skip", "--size", "8x4"];
    let (out, err) = run_both(&dry)?;
    ensure!(err.starts_with("found: imagefolder, 16 files, "), "{err}");
    for said in [
        "table pictures would be written from 16 files of the kind imagefolder (",
        "image       tensor uint8[3, 8, 4]  none",
        "label_name",
        "class0/000.png",
        "would be skipped: ",
        "class0/bad.png: ",
        "1 file with another ending was left out: .txt 1",
        "about 1.50 KiB to write, before compression",
    ] {
        ensure!(out.contains(said), "{said}: {out}");
    }
    Ok(())
}

/// Needs the format `jsonl`.
#[test]
fn of_many_rows_that_do_not_fit_a_dry_run_lists_some() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut lines = String::new();
    for id in 0..25 {
        writeln!(lines, "{{\"id\": {}}}", 1000 + id)?;
    }
    write(folder.path().join("a.jsonl"), lines + "{\"id\": 1}\n")?;
    let (out, _) = run_both(&["ingest", text(folder.path())?, "rows", "--dry-run", "--cast", "id=int8"])?;
    ensure!(out.matches("would end the ingest: ").count() == 20 && out.contains("\n5 more\n"), "{out}");
    Ok(())
}

#[test]
fn what_is_not_recognised_or_does_not_apply_is_refused() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (strange, data, lake) = (folder.path().join("strange"), folder.path().join("data"), folder.path().join("l"));
    create_dir_all(&strange)?;
    parquet_file(&data.join("a.parquet"))?;
    let (strange, data, lake) = (text(&strange)?, text(&data)?, text(&lake)?);
    let refused: [(&[&str], &str); 6] = [
        (&[strange, "t"], "no kind is recognised; seen: no files; kinds for --as: imagefolder, parquet"),
        (&["/nonexistent", "t"], "cannot list /nonexistent"),
        (&[strange, "t", "--as", "parquet"], "no file is of the kind parquet; seen: no files"),
        (
            &[data, "t", "--size", "8"],
            "--images, --size and others of class folders are not for sources of the kind parquet",
        ),
        (&[data, "t", "--rename", "id=x", "--audio", "y"], "--rename, --audio are not for sources of the kind parquet"),
        (&[data, "t", "--as", "imagefolder"], "no file is of the kind imagefolder; seen: 1 .parquet"),
    ];
    for (args, said) in refused {
        let error = run_failing(&[&["ingest"], args, &["--lake", lake]].concat())?;
        ensure!(error.contains(said), "{args:?}: {error}");
    }
    // Errors of arguments have another exit status.
    for (args, said) in [
        ([data, "t", "--as", "zip"], "possible values: imagefolder, parquet"),
        ([data, "t", "--cast", "id"], "should be COLUMN=TYPE"),
    ] {
        let output = stoker(&[&["ingest"], args.as_slice()].concat()).output()?;
        let error = String::from_utf8(output.stderr)?;
        ensure!(output.status.code() == Some(2) && error.contains(said), "{error}");
    }
    Ok(())
}

/// Needs the format `jsonl`.
#[test]
fn json_lines_are_written_renamed_cast_and_appended() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (data, lake) = (folder.path().join("data"), folder.path().join("lake"));
    create_dir_all(&data)?;
    let first =
        "{\"id\": 1, \"meta.score\": 0.5, \"text\": \"a\"}\n{\"id\": 2, \"meta.score\": 1.5, \"text\": \"b\"}\n";
    write(data.join("a.jsonl"), first)?;
    let (source, lake) = (text(&data)?, text(&lake)?);
    let ingest = ["ingest", source, "rows", "--rename", "id=key", "--cast", "id=int32", "--drop", "text"];
    let with = |more: &[&str]| run_both(&[&ingest, more, &["--lake", lake]].concat());
    let (out, err) = with(&["--dry-run"])?;
    ensure!(err.starts_with("found: jsonl, 1 files, "), "{err}");
    ensure!(out.contains("key         int32") && out.contains("meta_score  float64"), "{out}");
    ensure!(out.contains("| 2   | 1.5        |") && out.contains("the first 2 rows"), "{out}");
    let (out, _) = with(&[])?;
    ensure!(out.starts_with("table rows: version 1, 2 rows from 1 files"), "{out}");
    ensure!(value(lake, "SELECT sum(key + meta_score) AS s FROM rows")? == "5.0");

    write(data.join("b.jsonl"), "{\"id\": 3, \"meta.score\": 2}\n{\"id\": 3000000000, \"meta.score\": 2}\n")?;
    let error = run_failing(&[&ingest, ["--mode", "append", "--lake", lake].as_slice()].concat())?;
    ensure!(error.contains("b.jsonl row 1: column id: expected Int32"), "{error}");
    ensure!(value(lake, "SELECT count(*) AS n FROM rows")? == "2");
    let (out, err) = with(&["--mode", "append", "--on-error", "skip"])?;
    ensure!(err.contains("b.jsonl row 1: column id: expected Int32"), "{err}");
    ensure!(out.contains("version 2, 1 rows from 1 files") && out.contains("1 skipped, 1 files were there"), "{out}");
    let (out, _) = with(&["--mode", "append", "--on-error", "skip"])?;
    ensure!(out.contains("contains these sources already"), "{out}");
    Ok(())
}

/// Needs the format `csv`.
#[test]
fn csv_files_with_paths_of_images_are_written() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (data, lake) = (folder.path().join("data"), folder.path().join("lake"));
    image_folder(&data.join("images"), 2)?;
    let mut table = String::from("photo,label\n");
    for class in 0..3 {
        writeln!(table, "images/class{class}/001.png,{class}")?;
    }
    write(data.join("train.csv"), table)?;
    let (source, lake) = (text(&data)?, text(&lake)?);
    let (out, err) = run_both(&["ingest", source, "photos", "--image", "photo", "--lake", lake])?;
    ensure!(err.starts_with("found: csv, 1 files, "), "{err}");
    ensure!(out.starts_with("table photos: version 1, 3 rows"), "{out}");
    ensure!(!err.contains("left out"), "images to which rows refer are used: {err}");
    let described = run(&["describe", "photos", "--lake", lake])?;
    ensure!(described.contains("photo   encoded image"), "{described}");
    Ok(())
}

/// Returns the number of finished units in the journal of a lake in which one ingest runs.
fn finished_units(lake: &Path) -> usize {
    let entries = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let runs = entries(lake.join("_stoker/ingest")).filter(|run| !run.ends_with("done"));
    let is_unit = |file: &PathBuf| file.extension().is_some_and(|end| end == "json") && !file.ends_with("begun.json");
    runs.flat_map(entries).filter(is_unit).count()
}

/// Needs the format `jsonl`.
#[test]
fn an_ingest_of_files_that_is_killed_goes_on_and_writes_every_row_once() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (data, lake) = (folder.path().join("data"), folder.path().join("lake"));
    create_dir_all(&data)?;
    for file in 0..NUM_FILES {
        let mut lines = String::new();
        for row in 0..ROWS_PER_FILE {
            let id = file * ROWS_PER_FILE + row;
            writeln!(lines, "{{\"id\": {id}, \"text\": \"the row with the number {id}\"}}")?;
        }
        write(data.join(format!("{file:02}.jsonl")), lines)?;
    }
    let ingest = ["ingest", text(&data)?, "rows", "--unit-mib", "1", "--quiet", "--lake", text(&lake)?];
    for _ in 0..2 {
        let before = finished_units(&lake);
        let mut process = stoker(&ingest).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        while finished_units(&lake) <= before {
            ensure!(process.try_wait()?.is_none(), "the ingest ended before it could be killed: it needs more rows");
        }
        process.kill()?;
        ensure!(process.wait()?.signal() == Some(9), "the ingest ended before it was killed: it needs more rows");
        let tables = run(&["tables", "--lake", text(&lake)?])?;
        ensure!(tables.is_empty(), "a part of the rows is visible: {tables}");
    }
    let units = finished_units(&lake);
    let report = run(&ingest)?;
    let rows = NUM_FILES * ROWS_PER_FILE;
    ensure!(report.contains(&format!(", {units} units from an earlier run")), "{units} units: {report}");
    let lake = text(&lake)?;
    ensure!(value(lake, "SELECT count(DISTINCT id) AS n FROM rows")? == rows.to_string());
    ensure!(value(lake, "SELECT count(*) AS n FROM rows")? == rows.to_string());
    Ok(())
}
