//! Tests `stoker bench local`, `flight`, `s3`, `select`, `ranks` and `decode`, and the store that they use.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use stoker_tests::{Server, image_folder, run};

use super::{list, number, whole};

/// The number of rows of the measured tables, the bytes of their tensors, and the epochs of each process.
const IMAGES: (u64, u64) = (48, 150_528);
const TOKENS: (u64, u64) = (3_001, 2_048);
const EPOCHS: u64 = 3;

/// The number of JPEG files, and the bytes of each file's tensor.
const JPEGS: (u64, u64) = (270, 3 * 256 * 256);

/// The number of bytes of a label.
const LABEL_BYTES: u64 = 8;

/// Runs parts of `bench` on small tables in a folder, and returns the sections of the report.
fn rates(dir: &Path, args: &[&str]) -> Result<Vec<Value>> {
    let path = |name: &str| dir.join(name).to_str().map(str::to_string).context("UTF-8");
    let (json, svg, data) = (path("report.json")?, path("report.svg")?, path("data")?);
    let [images, tokens, jpegs, epochs] = [IMAGES.0, TOKENS.0, JPEGS.0, EPOCHS].map(|count| count.to_string());
    let rows = ["--rows", &images, "--token-rows", &tokens, "--jpeg-rows", &jpegs, "--narrow-rows", "5000"];
    let sizes = [rows.as_slice(), &["--batch-size", "16"]].concat();
    let times = ["--repeat", "2", "--epochs", &epochs, "--latency-ms", "1"];
    let files = ["--dir", &data, "--json", &json, "--svg", &svg];
    let printed = run(&[["bench"].as_slice(), args, &sizes, &times, &files].concat())?;
    let report: Value = serde_json::from_str(&std::fs::read_to_string(json)?)?;
    let drawn = std::fs::read_to_string(svg)?;
    ensure!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"), "{drawn}");
    ensure!(whole(&report, "epochs")? == EPOCHS && number(&report, "machine/cores")? >= 1.0, "{report}");
    if args.contains(&"s3") {
        for line in list(&report, "first_batch/lines")? {
            ensure!(number(line, "secs")? > 0.0 && number(line, "requests")? > 0.0, "{line}");
        }
    }
    for section in list(&report, "sections")? {
        ensure!(printed.contains(section["title"].as_str().context("a title")?), "{printed}");
        check_section(section)?;
    }
    Ok(list(&report, "sections")?.to_vec())
}

/// Checks what holds for any section: rates are positive, and ratios and bars exist if and only if there is a ceiling.
fn check_section(section: &Value) -> Result<()> {
    let has_ceiling = !section["ceiling"].is_null();
    for line in list(section, "lines")? {
        ensure!(number(line, "samples_per_sec")? > 0.0 && number(line, "bytes")? > 0.0, "{line}");
        ensure!(line["ratio"].is_number() == has_ceiling, "{line}");
        ensure!(line["met"].is_boolean() == (has_ceiling && line["bar"].is_number()), "{line}");
        ensure!(line["name"] != section["ceiling"] || number(line, "ratio")? == 1.0, "{line}");
    }
    Ok(())
}

/// Returns the lines of a section that are paths through Stoker, after it has checked that each delivered `rows` rows
/// in each epoch.
fn paths(section: &Value, rows: u64, row_bytes: u64) -> Result<Vec<&Value>> {
    let paths: Vec<&Value> = list(section, "lines")?.iter().filter(|line| line["role"] == "path").collect();
    for line in &paths {
        ensure!(whole(line, "rows")? == rows * EPOCHS, "{line}");
        ensure!(whole(line, "bytes")? == rows * EPOCHS * (row_bytes + LABEL_BYTES), "{line}");
    }
    Ok(paths)
}

/// Returns the bytes that a ceiling moved.
fn ceiling_bytes(section: &Value) -> Result<u64> {
    let ceiling = list(section, "lines")?.iter().find(|line| line["name"] == section["ceiling"]);
    whole(ceiling.context("a ceiling")?, "bytes")
}

#[test]
fn local_reads_each_byte_once_per_epoch() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let sections = rates(folder.path(), &["local"])?;
    ensure!(sections.len() == 2, "{sections:?}");
    for (section, (rows, row_bytes)) in sections.iter().zip([IMAGES, TOKENS]) {
        let paths = paths(section, rows, row_bytes)?;
        ensure!(paths.len() == 4, "{section}");
        for line in paths {
            ensure!(whole(line, "requests")? > 0 && number(line, "peak_memory_mib")? > 0.0, "{line}");
            ensure!((0.9..=1.1).contains(&number(line, "bytes_read_per_byte")?), "{line}");
        }
        // The first pass of the ceiling warms up and is not counted.
        let bytes = ceiling_bytes(section)?;
        ensure!(bytes >= rows * row_bytes * (EPOCHS - 1), "the ceiling read {bytes} bytes: {section}");
    }
    Ok(())
}

#[test]
fn flight_takes_all_rows_with_every_client() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let sections = rates(folder.path(), &["flight", "--data", "images"])?;
    let [section] = sections.as_slice() else { bail!("{} sections", sections.len()) };
    let paths = paths(section, IMAGES.0, IMAGES.1)?;
    if section["ceiling"].is_null() {
        let notes = section["notes"].to_string();
        ensure!(notes.contains("pyarrow is not installed") && paths.len() == 2, "{section}");
        return Ok(());
    }
    ensure!(paths.len() == 4 && paths.iter().all(|line| line["server_cpu_secs_per_gb"].is_number()), "{section}");
    ensure!(ceiling_bytes(section)? == IMAGES.0 * IMAGES.1 * EPOCHS, "{section}");
    Ok(())
}

#[test]
fn s3_and_select_read_what_they_deliver() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let sections = rates(folder.path(), &["s3", "--data", "images"])?;
    let [section] = sections.as_slice() else { bail!("{} sections", sections.len()) };
    let selected = rates(folder.path(), &["select"])?;
    let [selection] = selected.as_slice() else { bail!("{} sections", selected.len()) };
    let lake = folder.path().join("data/bench/lake");
    let count = "SELECT count(*) AS n FROM images WHERE pick = 7";
    let count = run(&["sql", count, "--format", "csv", "--lake", lake.to_str().context("UTF-8")?])?;
    let count: u64 = count.lines().nth(1).context("a count")?.parse()?;
    ensure!(0 < count && count < IMAGES.0, "{count} rows");
    for (section, rows, num_paths) in [(section, IMAGES.0, 2), (selection, count, 1)] {
        ensure!(ceiling_bytes(section)? >= rows * IMAGES.1 * EPOCHS, "{section}");
        let paths = paths(section, rows, IMAGES.1)?;
        ensure!(paths.len() == num_paths, "{section}");
        for line in paths {
            ensure!(whole(line, "requests")? > 0 && number(line, "bytes_read_per_byte")? > 0.99, "{line}");
        }
    }
    Ok(())
}

#[test]
fn compaction_is_compared_with_copies_and_streams() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let sections = rates(folder.path(), &["compact", "--no-profile"])?;
    let names: Vec<Vec<&str>> = sections
        .iter()
        .map(|section| Ok(list(section, "lines")?.iter().filter_map(|line| line["name"].as_str()).collect()))
        .collect::<Result<_>>()?;
    let of_streams = vec!["written at once", "compacted"];
    let expected = [
        vec!["copies of the files", "stoker compact"],
        of_streams.clone(),
        of_streams,
        vec!["alone", "while a compaction runs"],
    ];
    ensure!(names == expected, "{names:?}");
    let bars: Vec<f64> =
        sections.iter().map(|section| number(&list(section, "lines")?[1], "bar")).collect::<Result<_>>()?;
    ensure!(bars == [0.6, 0.95, 0.95, 0.9], "{bars:?}");
    Ok(())
}

#[test]
fn decode_turns_all_files_into_tensors() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let sections = rates(folder.path(), &["decode"])?;
    let [section, codecs @ ..] = sections.as_slice() else { bail!("no sections") };
    ensure!(codecs.len() == 4, "{} sections of codecs", codecs.len());
    for section in codecs {
        let lines = list(section, "lines")?;
        ensure!(lines.len() == 2 && section["ceiling"] == "codec alone", "{section}");
        ensure!(lines.iter().all(|line| line["bytes"] == lines[0]["bytes"]), "{section}");
    }
    let lines = list(section, "lines")?;
    ensure!(lines.len() == 3 && section["ceiling"] == "JPEG decoder alone", "{section}");
    for line in lines {
        // The first epoch warms up and is not counted.
        let rows = JPEGS.0 * (EPOCHS - 1);
        ensure!(whole(line, "rows")? == rows && whole(line, "bytes")? == rows * JPEGS.1, "{line}");
        ensure!(number(line, "cpu_secs_per_gb")? > 0.0, "{line}");
    }
    Ok(())
}

#[test]
fn ranks_read_the_blocks_that_they_share_once() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let sections = rates(folder.path(), &["ranks", "--data", "tokens", "--world-size", "5"])?;
    ensure!(sections.len() == 2, "{sections:?}");
    for section in &sections {
        ensure!(section["ceiling"] == "one stream", "{section}");
        ensure!(ceiling_bytes(section)? == TOKENS.0 * EPOCHS * (TOKENS.1 + LABEL_BYTES), "{section}");
        let paths = paths(section, TOKENS.0, TOKENS.1)?;
        ensure!(paths.len() == 1 && paths[0]["server_cpu_secs_per_gb"].is_number(), "{section}");
        // A rank that reads alone would need a request for each row. Each rank still reads the labels for itself. Some
        // rows are read twice: those of a rank's first batches, and those that it read before the other ranks came.
        ensure!(number(paths[0], "bytes_read_per_byte")? < 1.6, "{section}");
        ensure!(whole(paths[0], "requests")? < TOKENS.0 * EPOCHS * 3 / 4, "{section}");
    }
    Ok(())
}

/// Makes a lake with the table `pictures` in an object store over `folder`, and returns the store and the arguments
/// that open the lake.
fn lake_in_store(folder: &Path) -> Result<(Server, Vec<String>)> {
    let (pictures, bucket) = (folder.join("pictures"), folder.join("store/bucket"));
    image_folder(&pictures, 7)?;
    std::fs::create_dir_all(&bucket)?;
    let store = bucket.parent().and_then(Path::to_str).context("UTF-8")?;
    let store = Server::spawn(&["bench", "object-server", "--dir", store, "--latency-ms", "1"])?;
    let endpoint = format!("aws_endpoint={}", store.address);
    let option = "--storage-option";
    let keys = ["aws_access_key_id=any", "aws_secret_access_key=any"];
    let target = ["--lake", "s3://bucket/lake", option, &endpoint, option, keys[0], option, keys[1]];
    let ingest = ["ingest", "imagefolder", pictures.to_str().context("UTF-8")?, "pictures", "--quiet"];
    run(&[ingest.as_slice(), &target].concat())?;
    Ok((store, target.map(str::to_string).to_vec()))
}

#[test]
fn epochs_in_one_process_are_those_of_several() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (_store, remote) = lake_in_store(folder.path())?;
    let remote: Vec<&str> = remote.iter().map(String::as_str).collect();
    let lake = folder.path().join("store/bucket/lake");
    let local = ["--lake", lake.to_str().context("UTF-8")?];
    let log = folder.path().join("log");
    let logged = |target: &[&str], epochs: [&str; 4]| -> Result<(Value, String)> {
        let query = ["stream", "SELECT image, label FROM pictures", "--batch-size", "4", "--json"];
        let to_log = ["--log", log.to_str().context("UTF-8")?];
        let text = run(&[query.as_slice(), &to_log, &epochs, target].concat())?;
        Ok((serde_json::from_str(&text)?, std::fs::read_to_string(&log)?))
    };
    let (report, together) = logged(&remote, ["--epoch", "1", "--epochs", "3"])?;
    ensure!(whole(&report, "rows")? == 63 && whole(&report, "steps")? == 18, "{report}");
    ensure!(whole(&report, "steady_bytes")? * 3 == whole(&report, "bytes")? * 2, "{report}");
    ensure!(number(&report, "steady_secs")? <= number(&report, "secs")? + 0.001, "{report}");
    ensure!(whole(&report, "state/step")? == 18 && whole(&report, "state/epoch")? >= 3, "{report}");
    let mut alone = String::new();
    for epoch in ["1", "2", "3"] {
        alone += &logged(&local, ["--epoch", epoch, "--epochs", "1"])?.1;
    }
    ensure!(together == alone, "other batches:\n{together}\nand\n{alone}");
    Ok(())
}
