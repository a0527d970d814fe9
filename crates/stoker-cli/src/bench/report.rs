//! Medians, spreads and ratios to the ceiling.

use std::io::Write;

use serde_json::{Value, json};

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    pub bytes: u64,
    pub rows: u64,
    pub secs: f64,
    pub first_batch_secs: Option<f64>,
    /// Of the measured process, its start included.
    pub cpu_secs: f64,
    pub server_cpu_secs: Option<f64>,
    /// 0 when it was not measured in a process of its own.
    pub peak_bytes: u64,
}

/// All measurements of a run; the first name is the ceiling.
pub struct Report {
    header: Value,
    measurements: Vec<(String, Vec<Measurement>)>,
}

impl Report {
    pub fn new(rows: u64, batch_size: u64, repeat: usize) -> Self {
        let (cpu, cores) = machine();
        let header = json!({
            "version": env!("CARGO_PKG_VERSION"), "cpu": cpu, "cores": cores,
            "rows": rows, "row": "uint8[3,224,224]", "batch_size": batch_size, "repeat": repeat,
        });
        Self { header, measurements: Vec::new() }
    }

    pub fn add(&mut self, name: &str, measurement: Measurement) {
        match self.measurements.iter_mut().find(|(found, _)| found == name) {
            Some((_, list)) => list.push(measurement),
            None => self.measurements.push((name.to_string(), vec![measurement])),
        }
    }

    pub fn to_json(&self) -> Value {
        let ceiling = self.measurements.first().map_or(1.0, |(_, list)| median(list, rate));
        let line = |(name, list): &(String, Vec<Measurement>)| {
            let gigabytes = |m: &Measurement| m.bytes as f64 / 1e9;
            json!({
                "name": name,
                "megabytes_per_sec": median(list, rate).round(),
                "spread": [extreme(list, rate, f64::min).round(), extreme(list, rate, f64::max).round()],
                "ratio": (median(list, rate) / ceiling * 1000.0).round() / 1000.0,
                "samples_per_sec": median(list, |m| m.rows as f64 / m.secs).round(),
                "first_batch_secs": list[0].first_batch_secs.map(|_| median(list, |m| m.first_batch_secs.unwrap_or(0.0))),
                "cpu_secs_per_gb": (median(list, |m| m.cpu_secs / gigabytes(m)) * 100.0).round() / 100.0,
                "server_cpu_secs_per_gb": list[0].server_cpu_secs
                    .map(|_| (median(list, |m| m.server_cpu_secs.unwrap_or(0.0) / gigabytes(m)) * 100.0).round() / 100.0),
                "peak_memory_mib": (median(list, |m| m.peak_bytes as f64) / 1048576.0).round(),
            })
        };
        let lines: Vec<Value> = self.measurements.iter().map(line).collect();
        json!({ "machine": self.header, "measurements": lines })
    }

    pub fn print(&self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        let report = self.to_json();
        let machine = &report["machine"];
        writeln!(
            out,
            "stoker {} on {} ({} cores); {} rows of {}, batches of {}, median of {}\n",
            text(&machine["version"]),
            text(&machine["cpu"]),
            machine["cores"],
            machine["rows"],
            text(&machine["row"]),
            machine["batch_size"],
            machine["repeat"]
        )?;
        writeln!(
            out,
            "| path | MB/s | min–max | × ceiling | samples/s | first batch s | CPU s/GB | server CPU s/GB | peak MiB |"
        )?;
        writeln!(out, "|---|--:|--:|--:|--:|--:|--:|--:|--:|")?;
        for line in report["measurements"].as_array().into_iter().flatten() {
            let spread = format!("{}–{}", text(&line["spread"][0]), text(&line["spread"][1]));
            let cells = [
                "megabytes_per_sec",
                "",
                "ratio",
                "samples_per_sec",
                "first_batch_secs",
                "cpu_secs_per_gb",
                "server_cpu_secs_per_gb",
                "peak_memory_mib",
            ]
            .map(|key| if key.is_empty() { spread.clone() } else { text(&line[key]) });
            writeln!(out, "| {} | {} |", text(&line["name"]), cells.join(" | "))?;
        }
        Ok(())
    }
}

/// The processor's name, and the number of cores.
pub fn machine() -> (String, usize) {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    (model.trim_start_matches([' ', '\t', ':']).to_string(), cores)
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "–".into(),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.as_f64().map_or(number.to_string(), |number| number.to_string()),
        other => other.to_string(),
    }
}

/// Megabytes per second.
fn rate(measurement: &Measurement) -> f64 {
    measurement.bytes as f64 / 1e6 / measurement.secs.max(1e-9)
}

fn median(list: &[Measurement], value: impl Fn(&Measurement) -> f64) -> f64 {
    let mut values: Vec<f64> = list.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn extreme(list: &[Measurement], value: impl Fn(&Measurement) -> f64, pick: fn(f64, f64) -> f64) -> f64 {
    list.iter().map(value).reduce(pick).unwrap_or(0.0)
}
