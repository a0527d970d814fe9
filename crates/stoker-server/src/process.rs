//! The resources of this process.

/// The memory and open files of this process; zero where the operating system does not tell.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Process {
    /// The resident memory in bytes.
    pub resident_bytes: u64,
    /// The number of open files and connections.
    pub open_files: u64,
}

impl Process {
    /// Reads the current values from `/proc`.
    pub fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB"));
        let resident_bytes = resident.and_then(|kib| kib.trim().parse::<u64>().ok()).unwrap_or(0) << 10;
        let open_files = std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64);
        Self { resident_bytes, open_files }
    }
}
