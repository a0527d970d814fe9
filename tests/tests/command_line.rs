//! Tests the commands about tables with the real binary, and an ingest that is killed.

#![expect(clippy::cast_possible_truncation, reason = "tests know their numbers")]

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type};
use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use futures::TryStreamExt;
use image::RgbImage;
use parquet::arrow::ArrowWriter;
use stoker::{ConnectOptions, connect};
use stoker_tests::{Server, image_folder, run, run_failing, stoker};

/// The number of vectors of the indexed table, and their dimension.
const NUM_VECTORS: i64 = 600;
const DIMENSION: usize = 8;

/// The number of pictures of the ingest that is killed, and the length of their sides in pixels.
const NUM_PICTURES: usize = 400;
const SIDE: usize = 160;

/// The number of bytes of a picture's tensor.
const PICTURE_BYTES: usize = 3 * SIDE * SIDE;

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("UTF-8")
}

/// Concatenates the words of a command.
fn words<'a>(parts: &[&[&'a str]]) -> Vec<&'a str> {
    parts.concat()
}

/// Makes a lake with the table `pictures`: version 1 has 15 rows, version 2 has 30.
fn lake_of_pictures(folder: &Path) -> Result<String> {
    let (pictures, lake) = (folder.join("pictures"), folder.join("lake"));
    image_folder(&pictures, 5)?;
    let ingest = ["ingest", "imagefolder", text(&pictures)?, "pictures", "--quiet", "--lake", text(&lake)?];
    run(&ingest)?;
    run(&words(&[&ingest, &["--mode", "append", "--again"]]))?;
    Ok(text(&lake)?.to_string())
}

#[test]
fn versions_and_tags_are_listed_and_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let lake = lake_of_pictures(folder.path())?;
    let server = Server::start(&lake, "127.0.0.1:0", &[])?;
    let (local, served) = (["--lake", lake.as_str()], ["--server", server.address.as_str()]);
    let tags: [(&[&str], [&str; 2], &str); 3] = [
        (&["v1", "--version", "1"], local, "tag 'v1' names version 1 of pictures\n"),
        (&["first", "--tag", "v1"], served, "tag 'first' names version 1 of pictures\n"),
        (&["newest"], served, "tag 'newest' names version 2 of pictures\n"),
    ];
    for (tag, place, said) in tags {
        let output = run(&words(&[&["tag", "pictures"], tag, &place]))?;
        ensure!(output == said, "{output}");
    }
    let refused: [(&[&str], &str); 5] = [
        (&["tag", "pictures", "v1"], "tag 'v1' of table pictures already exists and names version 1"),
        (&["tag", "pictures", "a b"], "tag \"a b\" is not valid"),
        (&["tag", "pictures", "v9", "--version", "9"], "version 9 of table pictures does not exist"),
        (&["tag", "nothing", "v9"], "table nothing in"),
        (&["versions", "nothing"], "table nothing in"),
    ];
    for place in [local, served] {
        let listed = run(&words(&[&["versions", "pictures"], &place]))?;
        let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split('\t').collect()).collect();
        ensure!(lines.len() == 2 && lines.iter().all(|line| line.len() == 3), "{listed}");
        ensure!((lines[0][0], lines[0][2]) == ("version 1", "first, v1"), "{listed}");
        ensure!((lines[1][0], lines[1][2]) == ("version 2", "newest"), "{listed}");
        ensure!(lines.iter().all(|line| line[1].len() == 20 && line[1].ends_with('Z')), "{listed}");
        for (tag, rows) in [("v1", 15), ("first", 15), ("newest", 30)] {
            let sql = format!("SELECT count(*) AS n FROM pictures AT (TAG => '{tag}')");
            let counted = run(&words(&[&["sql", &sql, "--format", "csv"], &place]))?;
            ensure!(counted == format!("n\n{rows}\n"), "{tag}: {counted}");
        }
        for (command, said) in refused {
            let error = run_failing(&words(&[command, &place]))?;
            ensure!(error.contains(said), "{command:?}: {error}");
        }
    }
    Ok(())
}

#[test]
fn describe_tells_how_columns_are_stored() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let lake = lake_of_pictures(folder.path())?;
    let server = Server::start(&lake, "127.0.0.1:0", &[])?;
    run(&["tag", "pictures", "v1", "--version", "1", "--lake", &lake])?;
    let snapshots: [(&[&str], [&str; 2]); 3] = [
        (&[], ["pictures version 2, 30 rows", "2 fragments, "]),
        (&["--tag", "v1"], ["pictures version 1, 15 rows, tagged v1", "1 fragment, "]),
        (&["--version", "1"], ["pictures version 1, 15 rows, tagged v1", "1 fragment, "]),
    ];
    for place in [["--lake", lake.as_str()], ["--server", server.address.as_str()]] {
        for (at, [first_line, second_line]) in snapshots {
            let described = run(&words(&[&["describe", "pictures"], at, &place]))?;
            let mut lines = described.lines();
            ensure!(lines.next() == Some(first_line), "{described}");
            let size = lines.next().context("a second line")?;
            ensure!(size.starts_with(second_line) && size.ends_with("iB in data files"), "{described}");
            ensure!(lines.next() == Some(""), "{described}");
            let cells = |line: &str| -> Vec<String> {
                line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(String::from).collect()
            };
            let rows: Vec<Vec<String>> = lines.take_while(|line| !line.is_empty()).map(cells).collect();
            let names: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
            ensure!(names == ["column", "image", "label", "label_name", "path", "split"], "{described}");
            ensure!(
                rows[0] == ["column", "type", "stored as", "stored", "bytes/row", "nulls", "checksums"],
                "{described}"
            );
            ensure!(rows[1][..3] == ["image", "tensor uint8[3, 20, 24]", "plain values"], "{described}");
            ensure!(rows[1][4..] == ["1.41 KiB", "none", "yes"], "{described}");
            ensure!(rows[2][..2] == ["label", "int64"], "{described}");
            ensure!(rows[2][4..] == ["8 B", "none", "yes"], "{described}");
            ensure!(!described.contains("not "), "nothing looks like a fault: {described}");
        }
        for (at, said) in [("--version", "version 9 of table pictures"), ("--tag", "tag '9' of table pictures")] {
            let error = run_failing(&words(&[&["describe", "pictures", at, "9"], &place]))?;
            ensure!(error.contains(said), "{error}");
        }
    }
    Ok(())
}

#[test]
fn describe_shows_no_fault_of_encoded_images_and_their_indexes() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (pictures, lake) = (folder.path().join("pictures"), folder.path().join("lake"));
    image_folder(&pictures, 5)?;
    let lake = ["--lake", text(&lake)?];
    run(&words(&[&["ingest", "imagefolder", text(&pictures)?, "p", "--images", "encoded", "--quiet"], &lake]))?;
    run(&words(&[&["index", "p", "label", "--kind", "btree"], &lake]))?;
    let described = run(&words(&[&["describe", "p"], &lake]))?;
    let line = |name: &str| {
        let found = described.lines().find(|line| line.starts_with(name));
        found.with_context(|| described.clone())
    };
    let image = line("image")?;
    ensure!(image.contains("encoded image") && image.contains("files as they are"), "{described}");
    ensure!(line("label ")?.ends_with("label_idx (BTree)"), "{described}");
    for word in ["not", "no:", "fault", "faster", "damage"] {
        ensure!(!described.contains(word), "{word:?} looks like a fault: {described}");
    }
    let answer: serde_json::Value = serde_json::from_str(&run(&words(&[&["describe", "p", "--json"], &lake]))?)?;
    ensure!(answer["size"]["num_fragments"] == 1 && answer["size"]["num_deleted_rows"] == 0, "{answer}");
    Ok(())
}

#[test]
fn help_groups_the_options_of_the_lake() -> Result<()> {
    for command in ["sql", "describe", "stream", "serve", "ingest parquet"] {
        let mut words: Vec<&str> = command.split(' ').collect();
        words.push("--help");
        let help = run(&words)?;
        let (others, of_the_lake) = help.split_once("\nLake:\n").with_context(|| help.clone())?;
        for option in ["--lake <LAKE>", "--server <SERVER>", "--storage-option <KEY=VALUE>", "--tls-ca <TLS_CA>"] {
            ensure!(of_the_lake.contains(option) && !others.contains(option), "{option}: {help}");
        }
        ensure!(others.contains("Options:\n"), "{help}");
    }
    Ok(())
}

/// Returns the vector of a row: pseudorandom numbers from -1 to 1.
fn vector(id: i64) -> [f32; DIMENSION] {
    let mut state = id as u64 + 1;
    std::array::from_fn(|_| (xorshift(&mut state) >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
}

/// Returns the next number of a pseudorandom sequence (Marsaglia, "Xorshift RNGs", 2003), after a multiplication that
/// spreads small seeds.
fn xorshift(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Makes a lake with the table `vectors`, whose columns are id and emb.
fn lake_of_vectors(folder: &Path) -> Result<String> {
    let (file, lake) = (folder.join("vectors.parquet"), folder.join("lake"));
    let item = Arc::new(Field::new("item", DataType::Float32, false));
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("emb", DataType::FixedSizeList(item.clone(), DIMENSION as i32), false),
    ]));
    let values: ArrayRef = Arc::new(Float32Array::from_iter_values((0..NUM_VECTORS).flat_map(vector)));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(0..NUM_VECTORS)),
        Arc::new(FixedSizeListArray::try_new(item, DIMENSION as i32, values, None)?),
    ];
    let mut writer = ArrowWriter::try_new(File::create(&file)?, schema.clone(), None)?;
    writer.write(&RecordBatch::try_new(schema, columns)?)?;
    writer.close()?;
    let emb = format!("emb={DIMENSION}");
    run(&["ingest", "parquet", text(&file)?, "vectors", "--vector", &emb, "--lake", text(&lake)?, "--quiet"])?;
    Ok(text(&lake)?.to_string())
}

/// Returns the nearest rows with their distances, by brute force.
fn nearest(query: &[f32; DIMENSION], metric: &str, k: usize) -> Vec<(i64, f64)> {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let distance = |id: i64| {
        let row = vector(id);
        let (across, own, of_query) = (dot(&row, query), dot(&row, &row), dot(query, query));
        match metric {
            "cosine" => 1.0 - across / (own * of_query).sqrt(),
            "dot" => 1.0 - across,
            _ => own + of_query - 2.0 * across,
        }
    };
    let mut rows: Vec<(i64, f64)> = (0..NUM_VECTORS).map(|id| (id, distance(id))).collect();
    rows.sort_by(|a, b| a.1.total_cmp(&b.1));
    rows.truncate(k);
    rows
}

#[test]
fn searches_agree_with_brute_force_with_and_without_an_index_of_their_metric() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let lake = lake_of_vectors(folder.path())?;
    let server = Server::start(&lake, "127.0.0.1:0", &[])?;
    let query = vector(-7).map(|value| value * 3.0);
    let param = serde_json::to_string(&query)?;
    let check = |place: [&str; 2], metric: &str, option: &str| -> Result<()> {
        let sql = format!(
            "SELECT id, _distance FROM vector_search(vectors, emb, $1, k => 12, metric => '{metric}', {option})"
        );
        let found = run(&words(&[&["sql", &sql, "--param", &param, "--format", "csv"], &place]))?;
        let rows: Vec<&str> = found.lines().skip(1).collect();
        let expected = nearest(&query, metric, 12);
        ensure!(rows.len() == expected.len(), "{metric}, {option}: {found}");
        for (row, (id, distance)) in rows.into_iter().zip(expected) {
            let (found_id, found_distance) = row.split_once(',').context("two columns")?;
            let near = (found_distance.parse::<f64>()? - distance).abs() < 1e-4;
            ensure!(found_id == id.to_string() && near, "{metric}, {option}: {row} in place of {id}, {distance}");
        }
        Ok(())
    };
    let (local, served) = (["--lake", lake.as_str()], ["--server", server.address.as_str()]);
    check(local, "cosine", "use_index => true")?;
    let index = ["index", "vectors", "emb", "--kind", "ivf-flat", "--partitions", "4", "--metric", "cosine"];
    let said = run(&words(&[&index, &local]))?;
    let covered = "CREATE INDEX of table vectors: index emb_idx of kind ivf_flat covers ";
    ensure!(said.starts_with(covered) && said.ends_with("; version 2\n"), "{said}");
    for place in [local, served] {
        for metric in ["cosine", "l2", "dot"] {
            for option in ["nprobes => 4", "use_index => false"] {
                check(place, metric, option)?;
            }
        }
    }
    let said = run(&["index", "vectors", "id", "--kind", "btree", "--lake", &lake])?;
    ensure!(said.contains("index id_idx of kind btree covers") && said.ends_with("; version 3\n"), "{said}");
    let versions = run(&["versions", "vectors", "--lake", &lake])?;
    ensure!(versions.lines().count() == 3, "{versions}");
    let counted = run(&["sql", "SELECT count(*) AS n FROM vectors WHERE id < 9", "--format", "csv", "--lake", &lake])?;
    ensure!(counted == "n\n9\n", "{counted}");
    let error = run_failing(&words(&[&index, &served]))?;
    ensure!(error.contains("does not support writing: start it with --allow-writes"), "{error}");
    Ok(())
}

#[test]
fn statements_print_their_outcome_in_each_format() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let lake = lake_of_vectors(folder.path())?;
    let server = Server::start(&lake, "127.0.0.1:0", &["--allow-writes"])?;
    for place in [["--lake", lake.as_str()], ["--server", server.address.as_str()]] {
        let execute = |sql: &str, format: &str| run(&words(&[&["sql", sql, "--format", format], &place]));
        let said = execute("CREATE INDEX numbers ON vectors (id)", "table")?;
        ensure!(said.starts_with("CREATE INDEX of table vectors: index numbers of kind btree covers "), "{said}");
        let said = execute("CREATE INDEX IF NOT EXISTS numbers ON vectors (id)", "json")?;
        let outcome: serde_json::Value = serde_json::from_str(&said)?;
        ensure!(outcome["message"] == "index numbers exists already" && outcome["num_rows"].is_null(), "{said}");
        let said = execute("OPTIMIZE INDEX ON vectors", "csv")?;
        ensure!(said.starts_with("statement,table,version,num_rows,message\nOPTIMIZE INDEX,vectors,"), "{said}");
        let said = execute("SHOW INDEXES FROM vectors", "csv")?;
        ensure!(said.lines().count() == 2 && said.contains("numbers"), "{said}");
        execute("DROP INDEX numbers ON vectors", "table")?;
        let error = run_failing(&words(&[&["sql", "DROP INDEX numbers ON vectors"], &place]))?;
        ensure!(error.contains("index numbers of table vectors") && error.contains("no indexes"), "{error}");
    }
    Ok(())
}

#[test]
fn commands_change_rows_columns_and_tables() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let lake = lake_of_vectors(folder.path())?;
    let server = Server::start(&lake, "127.0.0.1:0", &["--allow-writes"])?;
    for (copy, place) in [("a", ["--lake", lake.as_str()]), ("b", ["--server", server.address.as_str()])] {
        let command = |args: &[&str]| run(&words(&[args, &place]));
        let count = |condition: &str| {
            let sql = format!("SELECT count(*) AS n FROM {copy} WHERE {condition}");
            let said = command(&["sql", &sql, "--format", "csv"])?;
            Ok::<i64, anyhow::Error>(said.trim().trim_start_matches("n\n").parse()?)
        };
        let expect = |args: &[&str], part: &str| {
            let said = command(args)?;
            ensure!(said.contains(part), "{args:?}: {said}");
            Ok(())
        };
        command(&["sql", &format!("CREATE TABLE {copy} AS SELECT id, emb FROM vectors WHERE id < 100")])?;
        expect(&["delete", copy, "--where", "id < $1", "-p", "10", "--dry-run"], "would delete 10 rows of table")?;
        ensure!(count("true")? == 100);
        expect(&["delete", copy, "--where", "id < $1 -- ten", "-p", "10"], "10 rows deleted; version 2")?;
        ensure!(count("true")? == 90);
        expect(&["update", copy, "--set", "id=id + 1000", "--where", "id >= 95"], "5 rows updated; version 3")?;
        ensure!(count("id >= 1000")? == 5);
        expect(&["add-column", copy, "half", "--sql", "id / 2.0", "--where", "id < 1000"], "added half")?;
        ensure!(count("half IS NULL")? == 5);
        expect(&["add-column", copy, "half", "--sql", "id * 0.5", "--replace"], "column half has new values")?;
        ensure!(count("half = id / 2.0")? == 90);
        expect(&["add-column", copy, "note", "TEXT"], "added note")?;
        expect(&["cast-column", copy, "id", "INT"], "column id has the type INT, with values in 90 rows")?;
        let said = command(&["describe", copy])?;
        ensure!(said.contains("int32") && !said.contains("int64"), "{said}");
        let error = run_failing(&words(&[&["cast-column", copy, "id", "TINYINT"], &place]))?;
        ensure!(
            error.contains("column id") && error.contains("row_id is") && error.contains("does not fit"),
            "{error}"
        );
        expect(&["rename-column", copy, "note", "remark"], "column note is called remark")?;
        expect(&["drop-column", copy, "remark", "half", "never", "--if-exists"], "dropped remark, half")?;
        expect(&["restore", copy, "--version", "1"], "those of version 1 again")?;
        ensure!(count("id < 10")? == 10);
        command(&["tag", copy, "v3", "--version", "3"])?;
        expect(&["restore", copy, "--tag", "v3"], "those of version 3 again")?;
        ensure!(count("id >= 1000")? == 5 && count("true")? == 90);
        expect(&["branch", copy, "trial", "--version", "1"], "CREATE BRANCH")?;
        expect(&["branch", copy], "trial")?;
        expect(&["truncate", &format!("{copy}@trial")], "100 rows deleted")?;
        ensure!(count("true")? == 90);
        expect(&["branch", copy, "trial", "--drop"], "DROP BRANCH")?;
        expect(&["truncate", copy], "90 rows deleted")?;
        expect(&["drop", copy], "the table is gone")?;
        expect(&["drop", copy, "--if-exists"], "there is no such table")?;
        let output = stoker(&words(&[&["restore", copy], &place])).output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(2) && error.contains("--version") && error.contains("--tag"), "{error}");
    }
    Ok(())
}

/// Returns the error line of a command that fails.
fn error_line(args: &[&str]) -> Result<String> {
    let output = run_failing(args)?;
    let mut lines = output.lines().filter(|line| line.starts_with("error: "));
    let line = lines.next().with_context(|| format!("no error in {output}"))?.to_string();
    ensure!(lines.next().is_none(), "{output}");
    Ok(line)
}

#[test]
fn errors_say_everything_once_and_nothing_of_the_source_code() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let lake = lake_of_vectors(folder.path())?;
    let index = ["index", "vectors", "id", "--kind", "ivf-flat", "--lake", &lake];
    let pq = ["index", "vectors", "emb", "--kind", "ivf-pq", "--sub-vectors", "3", "--lake", &lake];
    let endpoint = "aws_endpoint=http://127.0.0.1:1";
    let keys = ["--storage-option", "aws_access_key_id=a", "--storage-option", "aws_secret_access_key=hidden"];
    let store = words(&[&["tables", "--lake", "s3://bucket/lake", "--storage-option", endpoint], &keys]);
    let server = ["tables", "--server", "grpc://127.0.0.1:1"];
    let said_once: [(&[&str], &str); 6] = [
        (&index, "is for vectors"),
        (&pq, "num_sub_vectors is 3; it must divide"),
        (&store, "error sending request"),
        (&store, "refused"),
        (&server, "tcp connect error"),
        (&server, "refused"),
    ];
    for (args, once) in said_once {
        let error = error_line(args)?;
        ensure!(error.matches(once).count() == 1, "{error}");
        ensure!(!error.contains(".rs:") && !error.contains(".cargo"), "{error}");
        ensure!(!error.contains('?') && !error.contains("hidden") && error.chars().count() < 620, "{error}");
    }
    Ok(())
}

/// Returns the pixels of a picture, as red, green and blue of each pixel. They are pseudorandom, so that PNG cannot
/// compress them.
fn pixels(number: usize) -> Vec<u8> {
    let mut state = number as u64 + 1;
    (0..PICTURE_BYTES).map(|_| (xorshift(&mut state) >> 32) as u8).collect()
}

/// Returns the same pixels as the table stores them: one plane for each colour.
fn planes(number: usize) -> Vec<u8> {
    let pixels = pixels(number);
    (0..3).flat_map(|colour| pixels.iter().skip(colour).step_by(3).copied()).collect()
}

fn picture_path(number: usize) -> String {
    format!("class{}/{number:04}.png", number % 4)
}

/// Returns the number of finished units in the journal of a lake in which one ingest runs.
fn finished_units(lake: &Path) -> usize {
    let entries = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let runs = entries(lake.join("_stoker/ingest")).filter(|run| !run.ends_with("done"));
    let is_unit = |file: &PathBuf| file.extension().is_some_and(|end| end == "json") && !file.ends_with("begun.json");
    runs.flat_map(entries).filter(is_unit).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ingest_that_is_killed_goes_on_and_writes_every_row_once() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (pictures, lake) = (folder.path().join("pictures"), folder.path().join("lake"));
    for number in 0..NUM_PICTURES {
        let path = pictures.join(picture_path(number));
        std::fs::create_dir_all(path.parent().context("a folder")?)?;
        RgbImage::from_raw(SIDE as u32, SIDE as u32, pixels(number)).context("a picture")?.save(path)?;
    }
    let place = text(&lake)?;
    let ingest = ["ingest", "imagefolder", text(&pictures)?, "pictures", "--unit-mib", "1", "--quiet", "--lake", place];
    for _ in 0..2 {
        let before = finished_units(&lake);
        let mut process = stoker(&ingest).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        while finished_units(&lake) <= before {
            ensure!(
                process.try_wait()?.is_none(),
                "the ingest ended before it could be killed: it needs more pictures"
            );
        }
        process.kill()?;
        let status = process.wait()?;
        ensure!(status.signal() == Some(9), "the ingest ended before it was killed: it needs more pictures");
        let tables = run(&["tables", "--lake", place])?;
        ensure!(tables.is_empty(), "a part of the rows is visible: {tables}");
    }
    let units = finished_units(&lake);
    ensure!(units >= 2, "{units} units");
    let report = run(&ingest)?;
    ensure!(report.contains(&format!("version 1, {NUM_PICTURES} rows from {NUM_PICTURES} files")), "{report}");
    ensure!(report.contains(&format!(", {units} units from an earlier run")), "{units} units: {report}");
    ensure!(finished_units(&lake) == 0, "the journal is left");

    let mut missing: BTreeMap<String, usize> = (0..NUM_PICTURES).map(|number| (picture_path(number), number)).collect();
    let connection = connect(place, &ConnectOptions::default()).await?;
    let mut rows = connection.sql("SELECT path, label, image FROM pictures", &[]).await?.stream;
    while let Some(batch) = rows.try_next().await? {
        let (paths, images) = (batch["path"].as_string::<i32>(), batch["image"].as_fixed_size_list());
        for (row, label) in batch["label"].as_primitive::<Int64Type>().values().iter().enumerate() {
            let number = missing.remove(paths.value(row)).with_context(|| format!("{} again", paths.value(row)))?;
            ensure!(*label == number as i64 % 4, "{} has label {label}", paths.value(row));
            let image = images.value(row);
            ensure!(image.as_primitive::<UInt8Type>().values()[..] == planes(number), "{}", paths.value(row));
        }
    }
    ensure!(missing.is_empty(), "{} pictures have no row", missing.len());
    Ok(())
}
