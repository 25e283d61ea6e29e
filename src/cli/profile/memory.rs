//! How much memory the process takes, as Linux tells it; elsewhere nothing is known.

use std::fs;

/// Bytes in memory at most, since the watch began.
pub(super) struct Watch {
    /// Whether the system has forgotten what was before.
    begun: bool,
}

impl Watch {
    /// Begins to watch: what the process had before no longer counts.
    pub(super) fn begin() -> Watch {
        // 5 resets the mark of the highest resident set; see proc_pid_clear_refs(5). Not permitted everywhere.
        Watch { begun: fs::write("/proc/self/clear_refs", "5").is_ok() }
    }

    /// The most so far.
    pub(super) fn peak(&self) -> Option<u64> {
        let status = fs::read_to_string("/proc/self/status").ok().filter(|_| self.begun)?;
        kibibytes(&status, "VmHWM:")
    }
}

/// Bytes that may still be used without swapping.
pub(super) fn available() -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// The bytes of the line that begins with `key`, as in `VmHWM:     1234 kB`.
fn kibibytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc_are_read_as_bytes() {
        let status = "VmPeak:\t  9999 kB\nVmHWM:\t    2048 kB\n";
        assert_eq!(kibibytes(status, "VmHWM:"), Some(2 << 20));
        assert_eq!(kibibytes(status, "VmRSS:"), None);
        assert_eq!(kibibytes("VmHWM: lots", "VmHWM:"), None);
    }
}
