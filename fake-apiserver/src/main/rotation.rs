//! `RotatedFile`: a log file. Old files are rotated, compressed and removed in the same way as by Go's lumberjack.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Format of the times in the names of rotated files.
const TIME: &str = "%Y-%m-%dT%H-%M-%S.%3f";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Limits of a log; 0 means unlimited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum size of one file in bytes.
    pub(crate) bytes: u64,
    /// Maximum number of old files.
    pub(crate) backups: usize,
    /// Number of days for which old files are kept.
    pub(crate) days: u32,
    /// Set if old files are compressed.
    pub(crate) compresses: bool,
}

/// A log file to which lines are appended.
#[derive(Debug)]
pub(crate) struct RotatedFile {
    path: PathBuf,
    limits: Limits,
    file: File,
    length: u64,
}

impl RotatedFile {
    /// Opens the file, or creates it together with its directory.
    pub(crate) fn open(path: &Path, limits: Limits) -> io::Result<Self> {
        if let Some(folder) = path.parent().filter(|it| !it.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        let file = append(path)?;
        let length = file.metadata()?.len();
        let this = Self {
            path: path.to_owned(),
            limits,
            file,
            length,
        };
        this.tidy_up()?;
        Ok(this)
    }

    /// Renames the current file, and starts an empty one.
    fn rotate(&mut self) -> io::Result<()> {
        // The name of the renamed file contains the time of its last write.
        let last = self.file.metadata()?.modified()?;
        fs::rename(&self.path, self.backup(last)?)?;
        self.file = append(&self.path)?;
        self.length = 0;
        self.tidy_up()
    }

    /// Returns the prefix and the suffix of the names of rotated files.
    fn affixes(&self) -> (String, String) {
        let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        let end = self.path.extension().map(|it| format!(".{}", it.to_string_lossy()));
        (format!("{}-", text(self.path.file_stem())), end.unwrap_or_default())
    }

    fn backup(&self, time: SystemTime) -> io::Result<PathBuf> {
        let time = jiff::Timestamp::try_from(time).map_err(io::Error::other)?;
        let (start, end) = self.affixes();
        Ok(self.path.with_file_name(format!("{start}{}{end}", time.strftime(TIME))))
    }

    /// Returns the old files with their times, newest first. Compressed files end with `.gz`.
    fn old_files(&self) -> io::Result<Vec<(SystemTime, PathBuf)>> {
        let (start, end) = self.affixes();
        let folder = self.path.parent().filter(|it| !it.as_os_str().is_empty());
        let mut found = Vec::new();
        for entry in fs::read_dir(folder.unwrap_or(Path::new(".")))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let plain = name.strip_suffix(".gz").unwrap_or(&name);
            let time = plain.strip_prefix(&start).and_then(|it| it.strip_suffix(&end));
            let time = time.and_then(|it| jiff::civil::DateTime::strptime(TIME, it).ok());
            if let Some(time) = time.and_then(|it| it.to_zoned(jiff::tz::TimeZone::UTC).ok()) {
                found.push((SystemTime::from(time.timestamp()), path));
            }
        }
        found.sort();
        found.reverse();
        Ok(found)
    }

    /// Removes old files that exceed the limits, and compresses the others (`millRunOnce`).
    fn tidy_up(&self) -> io::Result<()> {
        let Limits {
            backups,
            days,
            compresses,
            ..
        } = self.limits;
        if backups == 0 && days == 0 && !compresses {
            return Ok(());
        }
        let now = self.file.metadata()?.modified()?;
        for (index, (time, path)) in self.old_files()?.into_iter().enumerate() {
            let is_old = days > 0 && now.duration_since(time).is_ok_and(|age| age > DAY * days);
            if is_old || (backups > 0 && index >= backups) {
                fs::remove_file(&path)?;
            } else if compresses && path.extension().is_none_or(|it| it != "gz") {
                compress(&path)?;
            }
        }
        Ok(())
    }
}

impl Write for RotatedFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Limits { bytes, .. } = self.limits;
        let length = line.len() as u64;
        if bytes > 0 && length > bytes {
            let why = format!("write length {length} exceeds maximum file size {bytes}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if bytes > 0 && self.length + length > bytes {
            self.rotate()?;
        }
        self.file.write_all(line)?;
        self.length += length;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Opens a file for appending, readable only by its owner.
fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Compresses a file to a new file with the suffix `.gz`, and removes the original.
fn compress(path: &Path) -> io::Result<()> {
    let mut name = OsString::from(path);
    name.push(".gz");
    let mut out = GzEncoder::new(File::create(&name)?, Compression::default());
    io::copy(&mut File::open(path)?, &mut out)?;
    out.finish()?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the path of an empty directory for one test.
    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("fake-apiserver-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("the path exists");
        let mut names: Vec<String> = entries
            .map(|it| it.expect("the path exists").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    fn limits(backups: usize, days: u32, compresses: bool) -> Limits {
        Limits {
            bytes: 10,
            backups,
            days,
            compresses,
        }
    }

    #[test]
    fn line_beyond_the_size_limit_starts_a_new_log_file() {
        let folder = folder("room");
        let path = folder.join("audit.log");
        let mut log = RotatedFile::open(&path, limits(0, 0, false)).expect("the file can be opened");
        for line in ["12345\n", "123\n", "1\n"] {
            log.write_all(line.as_bytes()).expect("the disk has space");
        }
        assert_eq!(fs::read_to_string(&path).expect("the path exists"), "1\n");
        let names = names(&folder);
        assert_eq!((names.len(), names[1].as_str()), (2, "audit.log"));
        assert!(
            names[0].starts_with("audit-2") && names[0].ends_with(".log"),
            "{names:?}"
        );
        let kept = fs::read_to_string(folder.join(&names[0])).expect("the path exists");
        assert_eq!(kept, "12345\n123\n");
        let why = log
            .write_all(b"12345678901\n")
            .expect_err("the line is longer than a file");
        assert_eq!(why.to_string(), "write length 12 exceeds maximum file size 10");
        fs::remove_dir_all(folder).expect("the path exists");
    }

    #[test]
    fn old_log_files_are_compressed_and_removed() {
        let folder = folder("old");
        fs::create_dir_all(&folder).expect("the directory can be created");
        let olds = [
            "audit-2001-02-03T04-05-06.007.log",
            "audit-2001-02-03T04-05-06.008.log",
            "audit-x.log",
            "other.log",
        ];
        for name in olds {
            fs::write(folder.join(name), "x").expect("the file is writable");
        }
        let path = folder.join("audit.log");
        drop(RotatedFile::open(&path, limits(0, 0, true)).expect("the file can be opened"));
        let gz = |name: &str| format!("{name}.gz");
        assert_eq!(
            names(&folder),
            [&gz(olds[0]), &gz(olds[1]), olds[2], "audit.log", olds[3]]
        );
        drop(RotatedFile::open(&path, limits(1, 0, false)).expect("the file can be opened"));
        assert_eq!(names(&folder), [&gz(olds[1]), olds[2], "audit.log", olds[3]]);
        drop(RotatedFile::open(&path, limits(0, 1, false)).expect("the file can be opened"));
        assert_eq!(names(&folder), [olds[2], "audit.log", olds[3]]);
        fs::remove_dir_all(folder).expect("the path exists");
    }
}
