//! `stoker bench compare`: an earlier build and this one measure in turns, so that both meet the same state of the
//! machine.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::path_text;
use crate::report::{median, spread, text};

/// Compare the rates of an earlier build with those of this one.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The `stoker` binary of the earlier build
    earlier: PathBuf,
    /// The parts of `stoker bench` [default: local, flight and s3]
    #[arg(value_enum)]
    parts: Vec<ComparedPart>,
    /// How often each build measures each part; the builds take turns
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..))]
    pairs: u64,
    /// The folder in which the data is written and kept; a temporary folder by default
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Further options of the parts, such as `--data images`
    #[arg(last = true)]
    options: Vec<String>,
}

/// A part of the benchmark whose rates can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ComparedPart {
    /// Streams in process
    Local,
    /// Streams over the loopback interface
    Flight,
    /// Streams from an object store
    S3,
    /// A stream of scattered rows
    Select,
    /// All ranks of a job at one server
    Ranks,
    /// Decoding of JPEG files
    Decode,
}

/// What a build measured in one turn.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    megabytes_per_sec: f64,
    /// Processor seconds per gigabyte, of the process that received the bytes.
    cpu_secs: Option<f64>,
}

/// The turns of the earlier build and of this one, for the title of a section and the name of a path.
type Turns = BTreeMap<(String, String), [Vec<Figures>; 2]>;

/// Lets both builds measure, and prints a table.
///
/// # Errors
/// A build that cannot run, and a measurement that fails.
pub fn run(args: &CompareArgs, out: &mut impl Write) -> anyhow::Result<()> {
    ensure!(args.earlier.is_file(), "{} is no file: give the `stoker` binary of a build", args.earlier.display());
    let temporary = std::env::temp_dir().join(format!("stoker-compare-{}", std::process::id()));
    let measured = measure(args, args.dir.as_deref().unwrap_or(&temporary));
    if args.dir.is_none() {
        std::fs::remove_dir_all(&temporary).ok();
    }
    print(out, &measured?)
}

fn measure(args: &CompareArgs, dir: &Path) -> anyhow::Result<Turns> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let this = std::env::current_exe().context("cannot find the binary of this process")?;
    let builds = [args.earlier.as_path(), &this];
    let parts = match args.parts.as_slice() {
        [] => &[ComparedPart::Local, ComparedPart::Flight, ComparedPart::S3],
        parts => parts,
    };
    let mut turns = Turns::new();
    for pair in 1..=args.pairs {
        for part in parts {
            eprintln!("{part:?}: pair {pair} of {}", args.pairs);
            // The build that measures first changes with each pair.
            for build in if pair % 2 == 1 { [0, 1] } else { [1, 0] } {
                let report = turn(builds[build], *part, &args.options, dir)?;
                for (path, figures) in figures(&report) {
                    turns.entry(path).or_default()[build].push(figures);
                }
            }
        }
    }
    Ok(turns)
}

/// Runs one part once, and returns its report.
fn turn(stoker: &Path, part: ComparedPart, options: &[String], dir: &Path) -> anyhow::Result<Value> {
    let report = dir.join("compare.json");
    let part = part.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default();
    let mut bench = Command::new(stoker);
    bench.args(["bench", &part, "--repeat", "1", "--dir", path_text(dir)?, "--json", path_text(&report)?]);
    bench.args(options).stdin(Stdio::null()).stdout(Stdio::null());
    let status = bench.status().with_context(|| format!("cannot run {}", stoker.display()))?;
    ensure!(status.success(), "`{} bench {part}` ended with {status}", stoker.display());
    let json = std::fs::read(&report).with_context(|| format!("cannot read {}", report.display()))?;
    serde_json::from_slice(&json).with_context(|| format!("{} is not JSON", report.display()))
}

/// Returns the figures of all lines of a report.
fn figures(report: &Value) -> Vec<((String, String), Figures)> {
    let mut found = Vec::new();
    for section in report["sections"].as_array().into_iter().flatten() {
        for line in section["lines"].as_array().into_iter().flatten() {
            let Some(megabytes_per_sec) = line["megabytes_per_sec"].as_f64() else { continue };
            let figures = Figures { megabytes_per_sec, cpu_secs: line["cpu_secs_per_gb"].as_f64() };
            found.push(((text(&section["title"]).to_string(), text(&line["name"]).to_string()), figures));
        }
    }
    found
}

/// Prints the medians of both builds, and the median and spread of the ratios of the pairs.
fn print(out: &mut impl Write, turns: &Turns) -> anyhow::Result<()> {
    writeln!(out, "| what | path | MB/s, earlier | MB/s, this build | ratio | min–max | ratio of CPU s/GB |")?;
    writeln!(out, "|---|---|--:|--:|--:|--:|--:|")?;
    for ((title, path), [earlier, this]) in turns {
        let rate = |figures: &Figures| figures.megabytes_per_sec;
        let ratios: Vec<f64> = this.iter().zip(earlier).map(|(this, earlier)| rate(this) / rate(earlier)).collect();
        let cpu = this.iter().zip(earlier).map(|(this, earlier)| Some(this.cpu_secs? / earlier.cpu_secs?));
        let cpu = cpu.collect::<Option<Vec<f64>>>().filter(|ratios| !ratios.is_empty());
        let cpu = cpu.map_or_else(|| "–".to_string(), |ratios| format!("{:.2}", median(&ratios)));
        let rates = [earlier, this].map(|turns| median(&turns.iter().map(rate).collect::<Vec<_>>()));
        let [least, most] = spread(&ratios);
        writeln!(
            out,
            "| {title} | {path} | {:.0} | {:.0} | {:.3} | {least:.3}–{most:.3} | {cpu} |",
            rates[0],
            rates[1],
            median(&ratios)
        )?;
    }
    writeln!(
        out,
        "\nratio: of this build to the earlier one, median of the pairs; each build measured once in a pair"
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_are_those_of_all_lines() {
        let line = json!({ "name": "sequential", "megabytes_per_sec": 1200.0, "cpu_secs_per_gb": null });
        let report = json!({ "sections": [{ "title": "in process, images", "lines": [line, {}] }, {}] });
        let expected = Figures { megabytes_per_sec: 1200.0, cpu_secs: None };
        assert_eq!(figures(&report), [(("in process, images".into(), "sequential".into()), expected)]);
    }

    #[test]
    fn ratios_are_those_of_pairs() {
        let turns =
            |rates: [f64; 3]| rates.map(|rate| Figures { megabytes_per_sec: rate, cpu_secs: Some(rate / 100.0) });
        let both = [turns([100.0, 200.0, 50.0]).to_vec(), turns([110.0, 180.0, 50.0]).to_vec()];
        let mut out = Vec::new();
        print(&mut out, &Turns::from([(("t".to_string(), "p".to_string()), both)])).expect("memory");
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains("| t | p | 100 | 110 | 1.000 | 0.900–1.100 | 1.00 |"), "{text}");
    }
}
