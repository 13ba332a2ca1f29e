//! `--audit-policy-file` and `--audit-log-*`: writes audit events as lines of JSON to a file or to stdout.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use fake_apiserver::{ApiServerBuilder, AuditPolicy};

use crate::report;
use crate::rotation::{Limits, RotatedFile};

/// Default size in megabytes at which the log is rotated.
const DEFAULT_MEGABYTES: u32 = 100;

/// Default number of rotated files.
const DEFAULT_BACKUPS: usize = 100;
const DEFAULT_DAYS: u32 = 366;

/// Options of the audit log.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Audit")]
pub(crate) struct AuditArgs {
    /// File with the policy (audit.k8s.io/v1) that selects the recorded requests and their level of detail
    #[arg(long, value_name = "FILE")]
    audit_policy_file: Option<PathBuf>,

    /// File to which events are appended, one JSON object per line; `-` is stdout
    #[arg(long, value_name = "FILE")]
    audit_log_path: Option<PathBuf>,

    /// Size in megabytes at which the file is rotated; 0 means 100
    #[arg(long, value_name = "MB", default_value_t = DEFAULT_MEGABYTES)]
    audit_log_maxsize: u32,

    /// Days for which rotated files are kept; 0 means unlimited
    #[arg(long, value_name = "DAYS", default_value_t = DEFAULT_DAYS)]
    audit_log_maxage: u32,

    /// Number of rotated files that are kept; 0 means unlimited
    #[arg(long, value_name = "N", default_value_t = DEFAULT_BACKUPS)]
    audit_log_maxbackup: usize,

    /// Compress rotated files with gzip
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    audit_log_compress: bool,

    /// Format of the log: only json is accepted
    #[arg(long, value_name = "FORMAT", default_value = "json", value_parser = ["json"])]
    audit_log_format: String,

    /// Mode in which events are written: only blocking is accepted
    #[arg(long, value_name = "MODE", default_value = "blocking", value_parser = ["blocking"])]
    audit_log_mode: String,

    /// API version of the events: only audit.k8s.io/v1 is accepted
    #[arg(long, value_name = "VERSION", default_value = "audit.k8s.io/v1", value_parser = ["audit.k8s.io/v1"])]
    audit_log_version: String,
}

/// Applies the options. As in kube-apiserver, nothing is logged unless both a policy and a log are set.
pub(crate) fn apply(args: &AuditArgs, builder: ApiServerBuilder) -> Result<ApiServerBuilder, String> {
    let (policy, log) = match (&args.audit_policy_file, &args.audit_log_path) {
        (Some(policy), Some(log)) => (policy, log),
        (None, Some(_)) => {
            report(format_args!(
                "no audit policy file provided, no events will be recorded for log backend"
            ));
            return Ok(builder);
        }
        (Some(policy), None) => {
            read(policy)?;
            report(format_args!("no audit log path provided, no events will be recorded"));
            return Ok(builder);
        }
        (None, None) => return Ok(builder),
    };
    let policy = read(policy)?;
    let out: Box<dyn Write + Send> = match log.to_str() {
        Some("-") => Box::new(io::stdout()),
        _ => {
            let megabytes = match args.audit_log_maxsize {
                0 => DEFAULT_MEGABYTES,
                size => size,
            };
            let limits = Limits {
                bytes: u64::from(megabytes) * 1024 * 1024,
                backups: args.audit_log_maxbackup,
                days: args.audit_log_maxage,
                compresses: args.audit_log_compress,
            };
            let file = RotatedFile::open(log, limits);
            Box::new(file.map_err(|err| format!("--audit-log-path {}: {err}", log.display()))?)
        }
    };
    let out = Mutex::new(out);
    Ok(builder.audit(policy, move |line| {
        let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(err) = out.write_all(line.as_bytes()).and_then(|()| out.flush()) {
            report(format_args!("an audit event was lost: {err}"));
        }
    }))
}

fn read(file: &PathBuf) -> Result<AuditPolicy, String> {
    let fail = |why: &dyn std::fmt::Display| format!("--audit-policy-file {}: {why}", file.display());
    let text = fs::read_to_string(file).map_err(|err| fail(&err))?;
    AuditPolicy::parse(&text).map_err(|err| fail(&err))
}
