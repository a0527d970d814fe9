//! `stoker bench compact`: compaction of a table that many appends, deletions and new columns made, compared with copies
//! of its files; streams of the compacted table, compared with one that was written at once; and streams of the older
//! version while a compaction runs at a quarter of the rate of copies.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, ensure};
use stoker_measure::process_use;

use crate::data::{DataSet, write_parts};
use crate::report::{Measurement, Role, Section, Turn, median};
use crate::runs::{BenchRun, WAYS};
use crate::service::own_command;
use crate::settings::{Settings, lake_in};
use crate::{lake_args, path_text, repetitions};

/// The number of appends that make the table.
const APPENDS: u64 = 50;

/// The share of the rate of copies that a compaction should reach.
const BAR: f64 = 0.60;

/// The share of the rate of a table that was written at once that streams of the compacted one should reach.
const STREAM_BAR: f64 = 0.95;

/// The share of their rate that streams should keep while a compaction runs.
const BESIDE_BAR: f64 = 0.90;

/// The rate of that compaction: one part of the rate of copies in this many.
const SLOWER: f64 = 4.0;

/// The bytes that a copy reads at once.
const COPY_BYTES: usize = 8 << 20;

/// What is done to the table after its appends.
const CHANGES: [&str; 3] = [
    "DELETE FROM images WHERE pick = 7",
    "ALTER TABLE images ADD COLUMN twice BIGINT AS (label * 2)",
    "ALTER TABLE images ADD COLUMN word TEXT AS ('row ' || label)",
];

/// The lakes of the measurements.
struct Lakes {
    /// The table that was written at once.
    whole: PathBuf,
    /// The table that many changes made; it stays as it is.
    parts: PathBuf,
    /// A copy of it, which is compacted.
    copy: PathBuf,
}

/// Measures copies, compactions and streams, alternately.
pub async fn measure(settings: &Settings, dir: &Path, data: &DataSet) -> anyhow::Result<Vec<Section>> {
    let whole = lake_in(dir);
    let lakes = Lakes { parts: whole.with_file_name("parts"), copy: whole.with_file_name("copy"), whole };
    lakes.make(settings, data).await?;
    let mut copying = Section::new("compaction", settings, data);
    let mut streams: Vec<Section> =
        WAYS.iter().map(|(name, _)| Section::new(&format!("compacted table, {name}"), settings, data)).collect();
    let mut beside = Section::new("older version beside a compaction", settings, data);
    let mut rates = Vec::new();
    for turn in repetitions("compaction", settings, data) {
        [&mut copying, &mut beside].into_iter().chain(&mut streams).for_each(|section| section.begin(turn));
        copying.measure("copies of the files", Role::Ceiling, || {
            let copied = lakes.copy_parts()?;
            rates.push(copied.bytes as f64 / copied.steady_secs / 1e6);
            Ok(copied)
        })?;
        copying.measure("stoker compact", Role::Path { bar: Some(BAR) }, || lakes.compact(data))?;
        for (section, (_, shuffle)) in streams.iter_mut().zip(WAYS) {
            let run = |lake: &Path| lakes.run(settings, data, shuffle, lake)?.measure(data);
            section.measure("written at once", Role::Ceiling, || run(&lakes.whole))?;
            section.measure("compacted", Role::Path { bar: Some(STREAM_BAR) }, || run(&lakes.copy))?;
        }
        if turn == Turn::Measured {
            lakes.copy_parts()?;
        }
        beside.measure("alone", Role::Ceiling, || lakes.run(settings, data, "block", &lakes.copy)?.measure(data))?;
        let rate = (median(&rates) / SLOWER).max(1.0) as u64;
        beside.measure("while a compaction runs", Role::Path { bar: Some(BESIDE_BAR) }, || {
            lakes.beside_compaction(settings, data, rate)
        })?;
    }
    fs::remove_dir_all(&lakes.copy).ok();
    copying.note(format!(
        "{APPENDS} appends; {}. The new table is as large as the copies, without the deleted rows; rates count the bytes \
         of the old files. Copies: one thread, {} MiB at a time.",
        CHANGES.join("; "),
        COPY_BYTES >> 20,
    ));
    beside.note(format!("`stoker compact --all --rate` with {:.0} MB/s.", median(&rates) / SLOWER));
    Ok([copying].into_iter().chain(streams).chain([beside]).collect())
}

impl Lakes {
    /// Makes the table of many changes, unless it exists.
    async fn make(&self, settings: &Settings, data: &DataSet) -> anyhow::Result<()> {
        if self.parts.exists() {
            return Ok(());
        }
        let unfinished = self.parts.with_extension("unfinished");
        fs::remove_dir_all(&unfinished).ok();
        fs::create_dir_all(&unfinished)?;
        let rows_each = data.num_rows.div_ceil(APPENDS);
        write_parts(&unfinished, data.kind, data.num_rows, settings.classes, rows_each).await?;
        for statement in CHANGES {
            let statement = statement.replace("images", data.kind.table());
            succeeds(&["sql", &statement, "--lake", path_text(&unfinished)?])?;
        }
        fs::rename(&unfinished, &self.parts)?;
        sync(&self.parts)
    }

    /// Copies the table of many changes, in place of an earlier copy.
    fn copy_parts(&self) -> anyhow::Result<Measurement> {
        fs::remove_dir_all(&self.copy).ok();
        let (before, started) = (process_use(std::process::id()).cpu_secs, Instant::now());
        let bytes = copy_folder(&self.parts, &self.copy, &mut vec![0; COPY_BYTES])?;
        let steady_secs = started.elapsed().as_secs_f64();
        let cpu_secs = Some(process_use(std::process::id()).cpu_secs - before);
        sync(&self.copy)?;
        Ok(Measurement { bytes, rows: 1, steady_bytes: bytes, steady_secs, cpu_secs, ..Measurement::default() })
    }

    /// Compacts the copy.
    fn compact(&self, data: &DataSet) -> anyhow::Result<Measurement> {
        let bytes = folder_bytes(&self.parts)?;
        let started = Instant::now();
        succeeds(&["compact", data.kind.table(), "--all", "--lake", path_text(&self.copy)?])?;
        let steady_secs = started.elapsed().as_secs_f64();
        sync(&self.copy)?;
        Ok(Measurement { bytes, rows: data.num_rows, steady_bytes: bytes, steady_secs, ..Measurement::default() })
    }

    fn run(&self, settings: &Settings, data: &DataSet, shuffle: &'static str, lake: &Path) -> anyhow::Result<LakeRun> {
        Ok(LakeRun {
            query: data.query(),
            batch_size: settings.batch_size,
            epochs: settings.epochs,
            shuffle,
            target: lake_args(lake)?,
        })
    }

    /// Streams the copy while it is compacted. The stream has the version from before, whichever begins first.
    fn beside_compaction(&self, settings: &Settings, data: &DataSet, rate: u64) -> anyhow::Result<Measurement> {
        let (table, lake, rate) = (data.kind.table(), path_text(&self.copy)?, rate.to_string());
        let version = succeeds(&["sql", "--format", "csv", "--lake", lake, &newest(table)])?;
        let version = version.lines().nth(1).context("a version")?.to_string();
        let mut run = self.run(settings, data, "block", &self.copy)?;
        run.query = format!("{} AT (VERSION => {version})", run.query);
        let mut compaction = own_command(&["compact", table, "--all", "--rate", &rate, "--lake", lake])?;
        let mut compaction = compaction.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let streamed = run.measure(data);
        // What is left of it takes as long as it takes, and tells nothing more.
        compaction.kill().ok();
        compaction.wait()?;
        streamed
    }
}

/// The query of the newest version of a table.
fn newest(table: &str) -> String {
    format!("SELECT max(version) AS version FROM versions({table})")
}

/// A stream, with the query that it owns.
struct LakeRun {
    query: String,
    batch_size: u64,
    epochs: u64,
    shuffle: &'static str,
    target: Vec<String>,
}

impl LakeRun {
    fn measure(self, data: &DataSet) -> anyhow::Result<Measurement> {
        let Self { query, batch_size, epochs, shuffle, target } = self;
        let streamed = BenchRun { query: &query, batch_size, epochs, shuffle, target }.measure()?;
        let rows = streamed.rows / epochs.max(1);
        ensure!(rows > data.num_rows / 2, "`{query}` gave {rows} rows of {}", data.num_rows);
        Ok(streamed)
    }
}

/// Runs a command of this program, and returns what it prints.
fn succeeds(args: &[&str]) -> anyhow::Result<String> {
    let done = own_command(args)?.output()?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "stoker {} failed: {}", args.join(" "), said.trim());
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Copies a folder, file after file. Returns the bytes of its files.
fn copy_folder(from: &Path, to: &Path, buffer: &mut [u8]) -> anyhow::Result<u64> {
    fs::create_dir_all(to)?;
    let mut bytes = 0;
    for entry in fs::read_dir(from)? {
        let (source, target) = {
            let entry = entry?;
            (entry.path(), to.join(entry.file_name()))
        };
        if source.is_dir() {
            bytes += copy_folder(&source, &target, buffer)?;
            continue;
        }
        let (mut source, mut target) = (File::open(source)?, File::create(target)?);
        loop {
            let read = source.read(buffer)?;
            if read == 0 {
                break;
            }
            target.write_all(&buffer[..read])?;
            bytes += read as u64;
        }
    }
    Ok(bytes)
}

/// The bytes of all files of a folder.
fn folder_bytes(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => folder_bytes(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(bytes)
}

/// Waits until the files of a folder are on the disk, because the kernel would otherwise write them back during the next
/// measurement.
fn sync(folder: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => sync(&path)?,
            false => File::open(path)?.sync_all()?,
        }
    }
    Ok(())
}
