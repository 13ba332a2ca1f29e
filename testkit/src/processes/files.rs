//! Files of a controller in a run: its kubeconfig and its in-cluster configuration.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::address::Address;

/// The directory that contains the files of all runs. Dropping this removes the directory, unless it is kept.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    is_kept: bool,
    next: AtomicU64,
}

impl Folder {
    /// Creates a directory in the system's directory for temporary files.
    pub(crate) fn new(is_kept: bool) -> io::Result<Arc<Self>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("drydock-{}-{number}", std::process::id()));
        fs::create_dir_all(&path)?;
        restrict(&path)?;
        Ok(Arc::new(Self {
            path,
            is_kept,
            next: AtomicU64::new(1),
        }))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Creates the directory of a run.
    pub(crate) fn run(&self) -> io::Result<RunFolder> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.path.join(format!("run-{number}"));
        fs::create_dir_all(&path)?;
        let is_kept = self.is_kept;
        Ok(RunFolder { path, is_kept })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_kept {
            // If this fails, the system eventually removes the directory.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Makes a directory accessible only to this user, because it contains tokens.
fn restrict(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
}

/// The directory of one run. It is removed at the end of the run, unless it is kept.
#[derive(Debug)]
pub(crate) struct RunFolder {
    pub(crate) path: PathBuf,
    is_kept: bool,
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

impl RunFolder {
    /// Writes the files of a controller, and returns their directory.
    pub(crate) fn write(&self, name: &str, address: &Address, token: &str, namespace: &str) -> io::Result<PathBuf> {
        let directory = self.path.join(name);
        fs::create_dir_all(&directory)?;
        let authority = address.authority();
        fs::write(directory.join("token"), token)?;
        fs::write(directory.join("ca.crt"), authority)?;
        fs::write(directory.join("namespace"), namespace)?;
        fs::write(
            directory.join("kubeconfig"),
            kubeconfig(&address.url(), authority, token, namespace),
        )?;
        Ok(directory)
    }
}

/// Returns a kubeconfig with a token.
fn kubeconfig(url: &str, authority: &str, token: &str, namespace: &str) -> String {
    let trust = match authority {
        "" => String::new(),
        pem => format!("\n    certificate-authority-data: {}", BASE64_STANDARD.encode(pem)),
    };
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: drydock
  cluster:
    server: {url}{trust}
users:
- name: controller
  user:
    token: {token}
contexts:
- name: drydock
  context:
    cluster: drydock
    user: controller
    namespace: {namespace}
current-context: drydock
"
    )
}
