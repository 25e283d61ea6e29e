//! How urgent a request is beside others, whatever their deadlines.

/// A level: those of a more urgent one are released first and refused last. A more urgent priority is the lesser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// The most urgent: 1.
    pub const HIGHEST: Priority = Priority(1);
    /// Of whoever asks for none: 5, so that there are levels on both sides.
    pub const DEFAULT: Priority = Priority(5);
    /// The least urgent: 10.
    pub const LOWEST: Priority = Priority(10);

    /// How many there are.
    pub(super) const LEVELS: usize = Priority::LOWEST.0 as usize;
    /// All of them, the most urgent first.
    pub(super) fn all() -> impl Iterator<Item = Priority> {
        (Priority::HIGHEST.0..=Priority::LOWEST.0).map(Priority)
    }

    /// The level of this number, from 1 (the most urgent) to 10; `None` for any other.
    #[must_use]
    pub fn new(level: u64) -> Option<Priority> {
        let known = Priority::HIGHEST.0..=Priority::LOWEST.0;
        u8::try_from(level).ok().filter(|level| known.contains(level)).map(Priority)
    }

    /// Its number, from 1 to 10.
    #[must_use]
    pub const fn level(self) -> u8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Priority {
        Priority::DEFAULT
    }
}
