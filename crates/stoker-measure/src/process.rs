//! The resource usage of a process, from `/proc`.

/// The processor time and the peak memory of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessUse {
    /// Processor time in seconds, user and system.
    pub cpu_secs: f64,
    /// The largest resident memory so far, in bytes.
    pub peak_bytes: u64,
}

/// Clock ticks per second in `/proc/PID/stat`; Linux's interface for user space fixes this number.
const TICKS_PER_SEC: f64 = 100.0;

/// Returns the usage of a process so far, with zeros where `/proc` has no figure.
pub fn process_use(pid: u32) -> ProcessUse {
    let stat = read(pid, "stat");
    // The fields are 14 and 15; they are counted after the command's name, which may contain spaces.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: f64 = after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ProcessUse { cpu_secs: ticks / TICKS_PER_SEC, peak_bytes: field(pid, "status", "VmHWM:") * 1024 }
}

/// Returns the resident memory of this process in bytes, or 0 if `/proc` does not say.
pub fn resident_bytes() -> u64 {
    field(std::process::id(), "status", "VmRSS:") * 1024
}

/// Returns the bytes that this process has read from files so far, those from the page cache included, or 0 if `/proc`
/// does not say.
pub fn bytes_read() -> u64 {
    field(std::process::id(), "io", "rchar:")
}

/// Resets the peak memory of this process to its current memory. Returns `false` if the kernel does not support that.
pub fn reset_peak() -> bool {
    // See proc_pid_clear_refs(5).
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// Returns the number after a name in a file of `/proc/PID`, or 0 if there is none.
fn field(pid: u32, file: &str, name: &str) -> u64 {
    let text = read(pid, file);
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

fn read(pid: u32, file: &str) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default()
}
