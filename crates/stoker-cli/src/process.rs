//! What a process used, from `/proc`.

/// Processor seconds and peak memory of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessUse {
    /// Seconds of processor time, user and system.
    pub cpu_secs: f64,
    /// The largest resident memory so far, in bytes.
    pub peak_bytes: u64,
}

/// Clock ticks per second in `/proc/PID/stat`; fixed by Linux's interface for user space.
const TICKS_PER_SEC: f64 = 100.0;

/// What a process used so far; zeros where `/proc` does not tell.
pub fn process_use(pid: u32) -> ProcessUse {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let stat = read("stat");
    // Fields 14 and 15, counted after the command's name, which may hold spaces.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: f64 = after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    let status = read("status");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0);
    ProcessUse { cpu_secs: ticks / TICKS_PER_SEC, peak_bytes: peak * 1024 }
}
