//! `Flight`: records the runs in progress on disk, so that the next exploration can report a run that crashed the
//! process.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Seek, Write};
use std::path::PathBuf;
use std::sync::Mutex;

use crate::explore::files::{directory, file_name};
use crate::explore::plans::Plan;
use crate::lock::lock;

/// Suffix of the file names.
const SUFFIX: &str = ".running";

/// The files of one exploration, one per thread. They are removed at the end of the exploration, unless the process is
/// killed before that. Without a writable directory, runs are not recorded.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    directory: Option<PathBuf>,
    prefix: String,
    files: Mutex<BTreeMap<String, FlightFile>>,
}

/// The file of a thread.
#[derive(Debug)]
struct FlightFile {
    path: PathBuf,
    /// The open file; `None` if it cannot be created.
    file: Option<File>,
    /// Length of the file in bytes.
    length: usize,
}

impl Flight {
    /// Creates the record. The names of the files contain the name of this thread, which is the name of the test.
    pub(crate) fn new() -> Self {
        Self {
            directory: directory(),
            prefix: file_name(std::thread::current().name().unwrap_or("explore")),
            files: Mutex::default(),
        }
    }

    /// Adds the part of the search to the names of the files, because several parts can run at the same time.
    pub(crate) fn is_part(&mut self, part: &impl std::fmt::Display) {
        self.prefix = file_name(&format!("{}-part-{part}", self.prefix));
    }

    /// Records the start of a run.
    pub(crate) fn begins(&self, thread: &str, plan: &Plan) {
        let Some(directory) = &self.directory else { return };
        let mut files = lock(&self.files);
        let number = files.len();
        let kept = files.entry(thread.to_owned()).or_insert_with(|| {
            let path = directory.join(format!("{}.{number}{SUFFIX}", self.prefix));
            let file = fs::create_dir_all(directory).and_then(|()| File::create(&path));
            let (file, length) = (file.ok(), 0);
            FlightFile { path, file, length }
        });
        if let Some(file) = &mut kept.file {
            let text = format!("EXPLORE_REPLAY='{plan}'\n");
            // Ignore errors: a run that cannot be recorded is not reported.
            let _ = file.rewind().and_then(|()| file.write_all(text.as_bytes()));
            if text.len() < kept.length {
                let _ = file.set_len(text.len() as u64);
            }
            kept.length = text.len();
        }
    }

    /// Returns the runs that were in progress when the process of an earlier exploration of this test was killed. Each
    /// run is reported only once.
    pub(crate) fn interrupted(&self) -> Vec<String> {
        let entries = self.directory.as_ref().and_then(|it| fs::read_dir(it).ok());
        let mut paths: Vec<PathBuf> = entries.into_iter().flatten().flatten().map(|it| it.path()).collect();
        paths.sort();
        let is_own = |path: &&PathBuf| {
            let name = path.file_name().and_then(|it| it.to_str()).unwrap_or_default();
            let rest = name.strip_prefix(&self.prefix).and_then(|it| it.strip_suffix(SUFFIX));
            rest.and_then(|it| it.strip_prefix('.'))
                .is_some_and(|it| it.bytes().all(|it| it.is_ascii_digit()))
        };
        let told = paths.iter().filter(is_own).filter_map(|path| {
            let text = fs::read_to_string(path).ok()?;
            let _ = fs::remove_file(path);
            let replay = text.trim_end();
            Some(format!(
                "the process ended during an earlier run of this test, possibly by `process::exit`; to replay: {replay}"
            ))
        });
        told.collect()
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        for kept in lock(&self.files).values() {
            // The file may have been removed.
            let _ = fs::remove_file(&kept.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_of_a_search_do_not_report_each_other_as_interrupted() {
        let [mut one, mut other] = [Flight::new(), Flight::new()];
        one.is_part(&"1/2");
        other.is_part(&"2/2");
        one.begins("thread", &Plan::default());
        assert_eq!(other.interrupted(), [""; 0]);
        assert_eq!(one.interrupted().len(), 1);
    }
}
