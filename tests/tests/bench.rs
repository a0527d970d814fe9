//! Tests the reports of `stoker bench`: their structure, and what holds at any speed of the machine.

#[path = "bench/rates.rs"]
mod rates;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stoker_tests::{image_folder, run, run_failing, stoker_bin};

/// The number of rows of the table of `bench scale`.
const ROWS: u64 = 200_000;

/// Bytes of a row set that do not grow with the rows: headers, and the last container of a bitmap, which may be almost
/// empty.
const ROW_SET_BYTES: u64 = 16 << 10;

/// The maximum bytes of metadata that opening a stream may read.
const METADATA_BYTES: u64 = 64 << 10;

fn report(args: &[&str]) -> Result<Value> {
    let text = run(args)?;
    serde_json::from_str(&text).with_context(|| format!("{args:?} printed {text}"))
}

/// Returns the number at a path of a report, such as `made/rows`.
fn number(report: &Value, place: &str) -> Result<f64> {
    let found = report.pointer(&format!("/{place}")).and_then(Value::as_f64);
    found.with_context(|| format!("no number at {place} in {report}"))
}

fn whole(report: &Value, place: &str) -> Result<u64> {
    let found = report.pointer(&format!("/{place}")).and_then(Value::as_u64);
    found.with_context(|| format!("no whole number at {place} in {report}"))
}

fn list<'a>(report: &'a Value, place: &str) -> Result<&'a [Value]> {
    let found = report.pointer(&format!("/{place}")).and_then(Value::as_array);
    found.map(Vec::as_slice).with_context(|| format!("no list at {place} in {report}"))
}

/// Returns the queries of a report of `bench scale`, after it has checked what holds for any number of rows.
fn scale_queries(report: &Value, rows: u64) -> Result<&[Value]> {
    ensure!(whole(report, "rows")? == rows, "{report}");
    ensure!(list(report, "bars")?.is_empty(), "bars at a size that they do not hold for: {report}");
    let queries = list(report, "queries")?;
    ensure!(queries.len() == 2 && whole(&queries[0], "made/rows")? == rows, "{report}");
    for query in queries {
        let selected = whole(query, "made/rows")?;
        for place in ["made/secs", "planned/places/0/secs", "opened/load_secs", "opened/places/0/first_batch_secs"] {
            ensure!(number(query, place)? > 0.0, "no time at {place} in {query}");
        }
        for step in ["planned", "opened"] {
            ensure!(whole(query, &format!("{step}/places/0/position"))? == 0, "{query}");
            ensure!(whole(query, &format!("{step}/places/1/position"))? == selected / 4 * 3, "{query}");
        }
        for place in ["planned/bytes_in_memory", "bytes_on_disk"] {
            let bytes = whole(query, place)?;
            ensure!(bytes <= rows.div_ceil(8) + ROW_SET_BYTES, "{bytes} bytes at {place} for {rows} rows");
        }
        ensure!(whole(query, "bytes_on_disk")? > 0, "{query}");
        let start = whole(query, "opened/places/0/bytes_read")?;
        let deep = whole(query, "opened/places/1/bytes_read")?;
        // A window holds 262,128 rows, so that all rows are one unit.
        ensure!(
            deep <= start + rows.div_ceil(8) + METADATA_BYTES,
            "{deep} bytes read deep inside, {start} at the start"
        );
    }
    Ok(queries)
}

#[test]
fn scale_keeps_half_of_the_rows_in_one_bit_each() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let dir = folder.path().join("scale");
    let dir = dir.to_str().context("UTF-8")?;
    let rows = ROWS.to_string();
    let args = ["bench", "scale", "--rows", &rows, "--dir", dir, "--json"];
    let first = report(&args)?;
    ensure!(number(&first, "write_secs")? > 0.0, "{first}");
    let queries = scale_queries(&first, ROWS)?;
    let kept = whole(&queries[1], "made/rows")?;
    // The tolerance is five standard deviations of this number of coin tosses.
    let spread = 5.0 * (ROWS as f64 / 4.0).sqrt();
    ensure!((kept as f64 - ROWS as f64 / 2.0).abs() <= spread, "{kept} of {ROWS} rows were kept");

    let again = report(&args)?;
    ensure!(again["write_secs"].is_null(), "the table was written again: {again}");
    for (before, after) in queries.iter().zip(scale_queries(&again, ROWS)?) {
        for name in ["stream", "row_set", "rows"] {
            ensure!(before["made"][name] == after["made"][name], "other {name}: {before} and {after}");
        }
        ensure!(before["bytes_on_disk"] == after["bytes_on_disk"], "{before} and {after}");
    }
    let error = run_failing(&["bench", "scale", "--rows", "7", "--dir", dir])?;
    ensure!(error.contains("200000 rows, not 7"), "{error}");
    Ok(())
}

#[test]
fn scale_takes_few_rows_and_prints_tables() -> Result<()> {
    for rows in [1, 1_001] {
        scale_queries(&report(&["bench", "scale", "--rows", &rows.to_string(), "--json"])?, rows)?;
    }
    let printed = run(&["bench", "scale", "--rows", "63"])?;
    ensure!(printed.contains("| SELECT keep FROM scale WHERE keep |") && !printed.contains("(bar"), "{printed}");
    let help = run(&["bench", "--help"])?;
    ensure!(help.contains("scale") && !help.contains("scale-step"), "{help}");
    Ok(())
}

#[test]
fn scale_leaves_other_tables_alone() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (pictures, lake) = (folder.path().join("pictures"), folder.path().join("lake"));
    image_folder(&pictures, 2)?;
    let (pictures, lake) = (pictures.to_str().context("UTF-8")?, lake.to_str().context("UTF-8")?);
    run(&["ingest", "imagefolder", pictures, "pictures", "--lake", lake, "--quiet"])?;
    let error = run_failing(&["bench", "scale", "--rows", "7", "--dir", lake])?;
    ensure!(error.contains("holds table pictures"), "{error}");
    Ok(())
}

#[test]
fn compare_measures_both_builds_in_turns() -> Result<()> {
    let this = stoker_bin();
    let this = this.to_str().context("UTF-8")?;
    let small = ["--", "--data", "tokens", "--token-rows", "512", "--epochs", "2"];
    let printed = run(&[&["bench", "compare", this, "local", "--pairs", "2"], &small[..]].concat())?;
    let rows: Vec<&str> = printed.lines().filter(|line| line.starts_with("| in process, tokens | ")).collect();
    for path in ["page-cache reads", "sequential", "block-shuffled"] {
        let row = rows.iter().find(|row| row.contains(&format!("| {path} |"))).context("a row for each path")?;
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        ensure!(cells[3..6].iter().all(|cell| cell.parse::<f64>().is_ok_and(|figure| figure > 0.0)), "{row}");
    }
    let error = run_failing(&["bench", "compare", "no/such/build", "local"])?;
    ensure!(error.contains("no/such/build is no file"), "{error}");
    let error = run_failing(&["bench", "compare", this, "local", "--pairs", "1", "--", "--no-such-option"])?;
    ensure!(error.contains("bench local"), "{error}");
    Ok(())
}

/// Checks what holds for any table whose lanes can be divided among the ranks.
fn check_order(case: &Value) -> Result<()> {
    ensure!(list(case, "distinct_labels")?.len() == 2 && number(case, "neighbours")? > 0.0, "{case}");
    let amplification = number(case, "read_amplification")?;
    ensure!((1.0..=1.1).contains(&amplification), "read amplification {amplification}: {case}");
    ensure!(number(case, "rank_correlation")?.abs() < 0.1, "{case}");
    Ok(())
}

#[test]
fn order_reads_each_block_once() -> Result<()> {
    let table = ["bench", "order", "--rows", "4096", "--row-bytes", "2048", "--json"];
    let defaults = [(1, 160), (8, 160), (1, 512), (8, 4_096)];
    for (held, jobs) in [(&[][..], &defaults[..]), (&["--held-mib", "3"][..], &[(1, 3), (8, 3)][..])] {
        let cases = report(&[&table[..], held].concat())?;
        let cases = cases.as_array().context("a list")?;
        ensure!(cases.len() == 2 * jobs.len(), "{} cases", cases.len());
        let expected = jobs.iter().flat_map(|(ranks, mib)| [(*ranks, *mib, 1), (*ranks, *mib, 2)]);
        for (case, (ranks, mib, version)) in cases.iter().zip(expected) {
            ensure!(whole(case, "rows")? == 4_096 && whole(case, "ranks")? == ranks, "{case}");
            ensure!(whole(case, "window_bytes")? == mib << 20, "{case}");
            ensure!(whole(case, "version")? == version && whole(case, "reads")? > 0, "{case}");
            check_order(case)?;
        }
    }
    Ok(())
}

#[test]
fn order_mixes_as_promised() -> Result<()> {
    let cases = report(&["bench", "order", "--json"])?;
    let cases = cases.as_array().context("a list")?;
    ensure!(cases.len() == 24, "{} cases", cases.len());
    for case in cases {
        check_order(case)?;
        let (ranks, bytes) = (whole(case, "ranks")?, whole(case, "window_bytes")?);
        // Version 1 promises to mix well with its default for each rank, version 2 with its default on one rank and with
        // 96 MiB for each of several.
        ensure!(whole(case, "resident_bytes")? <= bytes, "{case}");
        let bars = match whole(case, "version")? {
            1 if bytes == ranks * (512 << 20) => [0.97, 0.90],
            2 if bytes >= ranks * (96 << 20) => [0.99, 0.98],
            _ => continue,
        };
        for (index, (classes, share)) in [100, 1_000].into_iter().zip(bars).enumerate() {
            let labels = &list(case, "distinct_labels")?[index];
            ensure!(whole(labels, "classes")? == classes && number(labels, "share")? >= share, "{case}");
        }
    }
    Ok(())
}
