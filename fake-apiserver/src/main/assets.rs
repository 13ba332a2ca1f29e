//! `assets`: a folder with the programs of a control plane, as `KUBEBUILDER_ASSETS` names it.

use std::io;
use std::path::{Path, PathBuf};

use crate::{report, tell};

/// Further names of this program.
const NAMES: [&str; 2] = ["kube-apiserver", "etcd"];

/// Writes the programs into `folder` and says how to use it. A kubectl is linked if one is on the path.
pub(crate) fn install(folder: &Path) -> Result<(), String> {
    let fail = |path: &Path, err: io::Error| format!("cannot write {}: {err}", path.display());
    std::fs::create_dir_all(folder).map_err(|err| fail(folder, err))?;
    let folder = folder.canonicalize().map_err(|err| fail(folder, err))?;
    let this = std::env::current_exe().and_then(|it| it.canonicalize());
    let this = this.map_err(|err| format!("cannot find this program: {err}"))?;
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
            "there is no kubectl on the path, so none is in {}",
            folder.display()
        )),
    }
    tell(format_args!("export KUBEBUILDER_ASSETS={}", quoted(&folder)));
    Ok(())
}

/// The file name of a program.
fn program(name: &str) -> String {
    format!("{name}{}", std::env::consts::EXE_SUFFIX)
}

/// The first program of this name on the path, outside of `folder`.
fn find(name: &str, folder: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut folders = std::env::split_paths(&path);
    folders.find_map(|it| {
        let found = it.join(name);
        (found.is_file() && it.canonicalize().ok()? != folder).then_some(found)
    })
}

/// Makes `path` lead to `program`. What a control plane's programs were before is replaced: links and files, no
/// folders.
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

/// The path as a shell reads it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    match text.chars().all(is_plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}
