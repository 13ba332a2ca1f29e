//! `assets`: creates a directory with the programs of a control plane, for `KUBEBUILDER_ASSETS`.

use std::io;
use std::path::{Path, PathBuf};

use crate::{report, tell};

/// Names under which this program is installed.
const NAMES: [&str; 2] = ["kube-apiserver", "etcd"];

/// Writes the programs into `folder` and prints the command that sets `KUBEBUILDER_ASSETS`. Links kubectl if it is in
/// `PATH`.
pub(crate) fn install(folder: &Path) -> Result<(), String> {
    let fail = |path: &Path, err: io::Error| format!("cannot write {}: {err}", path.display());
    std::fs::create_dir_all(folder).map_err(|err| fail(folder, err))?;
    let folder = folder.canonicalize().map_err(|err| fail(folder, err))?;
    let this = std::env::current_exe().and_then(|it| it.canonicalize());
    let this = this.map_err(|err| format!("cannot determine the path of this executable: {err}"))?;
    for name in NAMES {
        let path = folder.join(program(name));
        link(&this, &path).map_err(|err| fail(&path, err))?;
    }
    let kubectl = program("kubectl");
    let path = folder.join(&kubectl);
    match find(&kubectl, &folder) {
        Some(found) => link(&found, &path).map_err(|err| fail(&path, err))?,
        None if path.exists() => {}
        None => report(format_args!(
            "kubectl was not found in PATH, so it is missing from {}",
            folder.display()
        )),
    }
    tell_folder(&folder);
    Ok(())
}

/// Prints the command that sets `KUBEBUILDER_ASSETS`.
#[cfg(not(windows))]
fn tell_folder(folder: &Path) {
    tell(format_args!("export KUBEBUILDER_ASSETS={}", quoted(folder)));
}

/// Prints the command for both Windows shells. The prefix added by `canonicalize` is removed, because other programs do
/// not support it.
#[cfg(windows)]
fn tell_folder(folder: &Path) {
    let text = folder.display().to_string();
    let text = text.strip_prefix(r"\\?\").unwrap_or(&text);
    tell(format_args!("cmd:        set \"KUBEBUILDER_ASSETS={text}\""));
    tell(format_args!(
        "PowerShell: $env:KUBEBUILDER_ASSETS = '{}'",
        text.replace('\'', "''")
    ));
}

/// Returns the file name of a program.
fn program(name: &str) -> String {
    format!("{name}{}", std::env::consts::EXE_SUFFIX)
}

/// Returns the first program with this name in `PATH`, ignoring `folder`.
fn find(name: &str, folder: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut folders = std::env::split_paths(&path);
    folders.find_map(|it| {
        let found = it.join(name);
        (found.is_file() && it.canonicalize().ok()? != folder).then_some(found)
    })
}

/// Links `path` to `program`, or copies it on Windows. Replaces an existing file or link, but not a directory.
fn link(program: &Path, path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => std::fs::remove_file(path)?,
        Err(err) if err.kind() == io::ErrorKind::NotFound => {}
        Err(err) => return Err(err),
    }
    #[cfg(unix)]
    return std::os::unix::fs::symlink(program, path);
    #[cfg(not(unix))]
    return std::fs::copy(program, path).map(drop);
}

/// Quotes the path for shells, including fish.
#[cfg(not(windows))]
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    match text.chars().all(is_plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}
