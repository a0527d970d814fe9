//! Computes medians, spreads, and ratios to the ceilings of the same repetitions.

use std::io::Write;

use serde_json::{Value, json};

use crate::data::DataSet;
use crate::profile::{self, Share};
use crate::settings::Settings;

/// One measurement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measurement {
    /// The bytes that were delivered, in all epochs.
    pub bytes: u64,
    pub rows: u64,
    /// The bytes and seconds from which the rate is computed.
    pub steady_bytes: u64,
    pub steady_secs: f64,
    pub first_batch_secs: Option<f64>,
    /// Processor seconds of the process that received the bytes, while it received the steady ones. For several streams
    /// in one process, it is the process's total time, scaled by the share of the steady bytes.
    pub cpu_secs: Option<f64>,
    /// Processor seconds of the server for all delivered bytes.
    pub server_cpu_secs: Option<f64>,
    /// Peak memory of the process that received the bytes; `None` if the measurement did not run in a process of its
    /// own.
    pub peak_bytes: Option<u64>,
    /// Requests to the store for all delivered bytes, and the bytes that the store sent.
    pub requests: Option<u64>,
    pub bytes_read: Option<u64>,
}

/// The role of a line in its section.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    /// A ceiling; other lines are compared with the fastest ceiling of the section.
    Ceiling,
    /// A measurement for comparison only.
    Reference,
    /// A path through Stoker, which should reach the share `bar` of the ceiling.
    Path { bar: Option<f64> },
}

/// Measurements that are compared with the same ceiling.
pub struct Section {
    title: String,
    data: Value,
    lines: Vec<Line>,
    notes: Vec<String>,
    turn: Turn,
}

/// What a turn of a section is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Everything is measured once.
    Measured,
    /// The paths that missed their bars run once more, while the machine is sampled.
    Profiled,
}

struct Line {
    name: String,
    role: Role,
    measurements: Vec<Measurement>,
    /// The functions that took the most time, if the line was profiled.
    profile: Option<Vec<Share>>,
}

impl Section {
    /// Makes a section about a table.
    pub fn new(title: &str, settings: &Settings, data: &DataSet) -> Self {
        Self::of_rows(title, settings, (data.kind.table(), &data.kind.describe(), data.num_rows))
    }

    /// Makes a section about a table, given as its name, a description of its rows, and their number.
    pub fn of_rows(title: &str, settings: &Settings, (table, row, num_rows): (&str, &str, u64)) -> Self {
        let data = json!({
            "table": table, "row": row, "rows": num_rows,
            "batch_size": settings.batch_size, "epochs": settings.epochs, "repeat": settings.repeat,
        });
        let title = format!("{title}, {table}");
        Self { title, data, lines: Vec::new(), notes: Vec::new(), turn: Turn::Measured }
    }

    /// Begins a turn.
    pub fn begin(&mut self, turn: Turn) {
        self.turn = turn;
    }

    /// Measures a repetition of a line and adds it. In a turn for profiles, only a path that missed its bar runs.
    ///
    /// # Errors
    /// Those of the measurement. A profile that fails becomes a note.
    pub fn measure(
        &mut self,
        name: &str,
        role: Role,
        work: impl FnOnce() -> anyhow::Result<Measurement>,
    ) -> anyhow::Result<()> {
        if self.turn == Turn::Measured {
            self.add(name, role, work()?);
        } else if self.missed(name) {
            eprintln!("{}: {name} missed its bar: profile", self.title);
            match profile::recorded(work) {
                Ok((_, shares)) => {
                    if let Some(line) = self.lines.iter_mut().find(|line| line.name == name) {
                        line.profile = Some(shares);
                    }
                }
                // What was measured stays.
                Err(error) => self.note(format!("No profile of {name}: {error:#}")),
            }
        }
        Ok(())
    }

    /// Adds a repetition of a line.
    pub fn add(&mut self, name: &str, role: Role, measurement: Measurement) {
        match self.lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.measurements.push(measurement),
            None => {
                self.lines.push(Line { name: name.to_string(), role, measurements: vec![measurement], profile: None })
            }
        }
    }

    fn missed(&self, name: &str) -> bool {
        let line = self.lines.iter().find(|line| line.name == name);
        line.is_some_and(|line| line.to_json(self.ceiling())["met"] == json!(false))
    }

    fn ceiling(&self) -> Option<&Line> {
        let ceilings = self.lines.iter().filter(|line| line.role == Role::Ceiling);
        ceilings.max_by(|one, other| one.median(rate).total_cmp(&other.median(rate)))
    }

    /// Adds a note for the reader.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Returns the section with all figures as JSON.
    pub fn to_json(&self) -> Value {
        let ceiling = self.ceiling();
        json!({
            "title": self.title,
            "data": self.data,
            "ceiling": ceiling.map(|line| &line.name),
            "lines": self.lines.iter().map(|line| line.to_json(ceiling)).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

impl Line {
    fn to_json(&self, ceiling: Option<&Line>) -> Value {
        let ratios = ceiling.map(|ceiling| self.ratios(ceiling)).unwrap_or_default();
        let ratio = (!ratios.is_empty()).then(|| rounded(median(&ratios), 3));
        let (role, bar) = match self.role {
            Role::Ceiling => ("ceiling", None),
            Role::Reference => ("reference", None),
            Role::Path { bar } => ("path", bar),
        };
        let per_gigabyte =
            |figure: fn(&Measurement) -> Option<f64>| self.try_median(|m| Some(figure(m)? / (m.bytes as f64 / 1e9)));
        let cpu_secs = self.try_median(|m| Some(m.cpu_secs? / (m.steady_bytes as f64 / 1e9)));
        let first = self.measurements.first().copied().unwrap_or_default();
        let rates: Vec<f64> = self.measurements.iter().map(rate).collect();
        json!({
            "name": self.name,
            "role": role,
            "bytes": first.bytes,
            "rows": first.rows,
            "megabytes_per_sec": median(&rates).round(),
            "spread": spread(&rates).map(f64::round),
            "ratio": ratio,
            "ratio_spread": ratio.map(|_| spread(&ratios).map(|ratio| rounded(ratio, 3))),
            "bar": bar,
            "met": ratio.zip(bar).map(|(ratio, bar)| ratio >= bar),
            "samples_per_sec": self.median(|m| rate(m) * 1e6 * m.rows as f64 / m.bytes as f64).round(),
            "first_batch_secs": self.try_median(|m| m.first_batch_secs),
            "cpu_secs_per_gb": cpu_secs.map(|secs| rounded(secs, 2)),
            "server_cpu_secs_per_gb": per_gigabyte(|m| m.server_cpu_secs).map(|secs| rounded(secs, 2)),
            "peak_memory_mib": self.try_median(|m| Some(m.peak_bytes? as f64 / 1_048_576.0)).map(f64::round),
            "bytes_read_per_byte": self.try_median(|m| Some(m.bytes_read? as f64 / m.bytes as f64)).map(|r| rounded(r, 3)),
            "requests": first.requests,
            "profile": self.profile.as_ref().map(|shares| {
                shares.iter().map(|share| json!([rounded(share.percent, 1), share.function])).collect::<Vec<_>>()
            }),
            "requests_per_gb": per_gigabyte(|m| m.requests.map(|requests| requests as f64)).map(f64::round),
        })
    }

    /// Returns the ratio of this line's rate to the ceiling's rate in each repetition.
    fn ratios(&self, ceiling: &Line) -> Vec<f64> {
        self.measurements.iter().zip(&ceiling.measurements).map(|(own, ceiling)| rate(own) / rate(ceiling)).collect()
    }

    fn median(&self, figure: impl Fn(&Measurement) -> f64) -> f64 {
        median(&self.measurements.iter().map(figure).collect::<Vec<_>>())
    }

    /// Returns the median of a figure, or `None` unless all measurements have the figure.
    fn try_median(&self, figure: impl Fn(&Measurement) -> Option<f64>) -> Option<f64> {
        let figures: Option<Vec<f64>> = self.measurements.iter().map(figure).collect();
        figures.map(|figures| median(&figures))
    }
}

/// Returns the rate in megabytes per second.
fn rate(measurement: &Measurement) -> f64 {
    measurement.steady_bytes as f64 / 1e6 / measurement.steady_secs.max(1e-9)
}

/// Returns the median, which is the upper of the two middle values for an even number of values, or zero if there are
/// no values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// Returns the smallest and the largest value.
pub fn spread(values: &[f64]) -> [f64; 2] {
    [f64::min, f64::max].map(|pick: fn(f64, f64) -> f64| values.iter().copied().reduce(pick).unwrap_or(0.0))
}

pub fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// Returns the version, the processor's name and the number of cores.
pub fn header() -> Value {
    let (cpu, cores) = machine();
    json!({ "version": env!("CARGO_PKG_VERSION"), "cpu": cpu, "cores": cores })
}

/// Returns the processor's name and the number of cores.
pub fn machine() -> (String, usize) {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    (model.trim_start_matches([' ', '\t', ':']).to_string(), cores)
}

/// The columns of a section's table: heading, and key of the figure.
const COLUMNS: [(&str, &str); 11] = [
    ("MB/s", "megabytes_per_sec"),
    ("min–max", "spread"),
    ("× ceiling", "ratio"),
    ("bar", "bar"),
    ("samples/s", "samples_per_sec"),
    ("first batch s", "first_batch_secs"),
    ("CPU s/GB", "cpu_secs_per_gb"),
    ("server CPU s/GB", "server_cpu_secs_per_gb"),
    ("peak MiB", "peak_memory_mib"),
    ("read/delivered", "bytes_read_per_byte"),
    ("requests/GB", "requests_per_gb"),
];

/// Prints the table of a section from its JSON.
pub fn print_section(out: &mut impl Write, section: &Value) -> anyhow::Result<()> {
    let data = &section["data"];
    let about = ["row", "rows", "batch_size", "repeat"].map(|key| text(&data[key]));
    let [row, rows, batch_size, repeat] = about;
    writeln!(out, "{}: {rows} rows of {row}, batches of {batch_size}, median of {repeat}\n", text(&section["title"]))?;
    writeln!(out, "| path | {} |", COLUMNS.map(|(heading, _)| heading).join(" | "))?;
    writeln!(out, "|---|{}", "--:|".repeat(COLUMNS.len()))?;
    for line in section["lines"].as_array().into_iter().flatten() {
        let is_ceiling = line["name"] == section["ceiling"];
        let cells = COLUMNS.map(|(_, key)| cell(line, key));
        writeln!(
            out,
            "| {}{} | {} |",
            text(&line["name"]),
            if is_ceiling { " (ceiling)" } else { "" },
            cells.join(" | ")
        )?;
    }
    writeln!(out)?;
    print_profiles(out, section)?;
    for note in section["notes"].as_array().into_iter().flatten() {
        writeln!(out, "{}\n", text(note))?;
    }
    Ok(())
}

/// Prints in which functions the machine was while paths that missed their bars ran once more.
fn print_profiles(out: &mut impl Write, section: &Value) -> anyhow::Result<()> {
    let lines = section["lines"].as_array().into_iter().flatten();
    let mut profiled = lines.filter(|line| !line["profile"].is_null()).peekable();
    if profiled.peek().is_none() {
        return Ok(());
    }
    writeln!(out, "| path that missed its bar | functions with at least 2 % of the samples of all processors |")?;
    writeln!(out, "|---|---|")?;
    for line in profiled {
        let shares = line["profile"].as_array().into_iter().flatten();
        let told: Vec<String> = shares
            .map(|share| format!("{:.0} % `{}`", share[0].as_f64().unwrap_or_default(), text(&share[1])))
            .collect();
        writeln!(out, "| {} | {} |", text(&line["name"]), told.join(", "))?;
    }
    writeln!(out)?;
    Ok(())
}

fn cell(line: &Value, key: &str) -> String {
    let value = &line[key];
    match (key, &line["met"]) {
        ("spread", _) => format!("{}–{}", text(&value[0]), text(&value[1])),
        ("bar", Value::Bool(true)) => format!("{} met", text(value)),
        ("bar", Value::Bool(false)) => format!("{} missed", text(value)),
        _ => text(value),
    }
}

/// Formats a value for people.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => "–".into(),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.as_f64().map_or(number.to_string(), |number| number.to_string()),
        other => other.to_string(),
    }
}
