//! The process's own memory, processor time and files, where the system tells them as Linux does.

#[cfg(target_os = "linux")]
pub(super) use metrics_process::Collector;

/// Tells nothing.
#[cfg(not(target_os = "linux"))]
#[derive(Debug, Default)]
pub(super) struct Collector;

#[cfg(not(target_os = "linux"))]
impl Collector {
    pub(super) fn describe(&self) {}

    pub(super) fn collect(&self) {}
}
