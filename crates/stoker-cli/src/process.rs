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
    let stat = read(pid, "stat");
    // Fields 14 and 15, counted after the command's name, which may hold spaces.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: f64 = after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ProcessUse { cpu_secs: ticks / TICKS_PER_SEC, peak_bytes: field(pid, "status", "VmHWM:") * 1024 }
}

/// Bytes of memory that this process holds now; 0 where `/proc` does not tell.
pub fn resident_bytes() -> u64 {
    field(std::process::id(), "status", "VmRSS:") * 1024
}

/// Bytes that this process read from files so far, also from the page cache; 0 where `/proc` does not tell.
pub fn bytes_read() -> u64 {
    field(std::process::id(), "io", "rchar:")
}

/// Lets the peak of this process start again at the memory that it holds now. `false` where the kernel cannot do that.
pub fn reset_peak() -> bool {
    // See proc_pid_clear_refs(5).
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// The number behind a name in a file of a process; 0 if there is none.
fn field(pid: u32, file: &str, name: &str) -> u64 {
    let text = read(pid, file);
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

fn read(pid: u32, file: &str) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default()
}
