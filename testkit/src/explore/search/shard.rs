//! `Shard`: one part of a search that is divided among several machines.

use std::fmt;

use crate::explore::files::file_name;

/// Environment variable that selects the part of the search to run: `2/8`.
pub(crate) const SHARD: &str = "EXPLORE_SHARD";

/// One part of a search: every n-th plan of each kind, where n is the number of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    /// Number of this part, from 1.
    pub(crate) number: u64,
    pub(crate) of: u64,
}

impl Shard {
    /// The whole search.
    pub(crate) const WHOLE: Self = Self { number: 1, of: 1 };

    /// Reads the shard from the environment variable.
    pub(crate) fn of_environment() -> Self {
        let Ok(text) = std::env::var(SHARD) else {
            return Self::WHOLE;
        };
        Self::parse(&text)
            .unwrap_or_else(|| panic!("{SHARD} must be NUMBER/TOTAL, such as 2/8, counted from 1; it is {text:?}"))
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (number, of) = text.split_once('/')?;
        let (number, of) = (number.trim().parse().ok()?, of.trim().parse().ok()?);
        (1..=of).contains(&number).then_some(Self { number, of })
    }

    pub(crate) fn is_whole(self) -> bool {
        self.of == 1
    }

    /// Returns `true` if the plan with this index belongs to this shard.
    pub(crate) fn has(self, place: u64) -> bool {
        place % self.of == self.number - 1
    }

    /// Selects the plans of this shard. Plans that are derived from them also belong to this shard.
    pub(crate) fn part<T>(self, all: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
        let numbered = all.zip(0..);
        numbered.filter(move |(_, place)| self.has(*place)).map(|(it, _)| it)
    }

    /// Returns the number of plans of this shard.
    pub(crate) fn share(self, all: u64) -> u64 {
        all / self.of + u64::from(all % self.of >= self.number)
    }

    /// Returns the seed for the random plans of this shard, which is different for each shard.
    pub(crate) fn seed(self, seed: u64) -> u64 {
        seed.wrapping_add((self.number - 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns the file name of the shard's report.
    pub(crate) fn file(self, test: &str) -> String {
        match self.is_whole() {
            true => file_name(test),
            false => format!("{}.shard-{}-of-{}", file_name(test), self.number, self.of),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}
