//! `--requestheader-*`: authenticating proxies, which send the user in headers.

use std::fs;
use std::path::PathBuf;

use fake_apiserver::{FrontProxy, ServeOptions};
use serde_json::{Map, Value};

/// Options for authenticating proxies.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Front proxy")]
pub(crate) struct FrontProxyArgs {
    /// File with certificate authorities for the client certificates of proxies, which send the user in headers
    #[arg(long, value_name = "FILE")]
    requestheader_client_ca_file: Option<PathBuf>,

    /// Permitted common names of these certificates [default: any]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = CA)]
    requestheader_allowed_names: Vec<String>,

    /// Headers with the user's name; the first one present is used
    #[arg(long, value_name = "HEADERS", value_delimiter = ',', requires = CA)]
    requestheader_username_headers: Vec<String>,

    /// Headers with the user's uid; the first one present is used
    #[arg(long, value_name = "HEADERS", value_delimiter = ',', requires = CA)]
    requestheader_uid_headers: Vec<String>,

    /// Headers with the user's groups
    #[arg(long, value_name = "HEADERS", value_delimiter = ',', requires = CA)]
    requestheader_group_headers: Vec<String>,

    /// Prefixes of headers with the user's extra fields
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',', requires = CA)]
    requestheader_extra_headers_prefix: Vec<String>,
}

/// The option on which the others depend.
const CA: &str = "requestheader_client_ca_file";

/// Applies the options for authenticating proxies.
pub(crate) fn apply(args: &FrontProxyArgs, options: ServeOptions) -> Result<ServeOptions, String> {
    let Some(proxy) = proxy(args)? else { return Ok(options) };
    Ok(options.front_proxy(proxy))
}

/// Returns the data to publish in the ConfigMap `extension-apiserver-authentication` (`clusterauthenticationtrust`).
pub(crate) fn published(args: &FrontProxyArgs) -> Result<Map<String, Value>, String> {
    let Some(proxy) = proxy(args)? else {
        return Ok(Map::new());
    };
    let list = |list: &[String]| Value::from(Value::from(list).to_string());
    let mut data = Map::new();
    let lists = [
        ("allowed-names", &proxy.allowed_names),
        ("username-headers", &proxy.username_headers),
        ("group-headers", &proxy.group_headers),
        ("extra-headers-prefix", &proxy.extra_headers_prefix),
    ];
    for (name, values) in lists {
        data.insert(format!("requestheader-{name}"), list(values));
    }
    if !proxy.uid_headers.is_empty() {
        data.insert("requestheader-uid-headers".into(), list(&proxy.uid_headers));
    }
    let pem = String::from_utf8_lossy(&proxy.client_ca);
    data.insert("requestheader-client-ca-file".into(), pem.into());
    Ok(data)
}

/// Returns the trusted proxy, if one is configured.
fn proxy(args: &FrontProxyArgs) -> Result<Option<FrontProxy>, String> {
    let Some(file) = &args.requestheader_client_ca_file else {
        return Ok(None);
    };
    let client_ca =
        fs::read(file).map_err(|err| format!("--requestheader-client-ca-file {}: {err}", file.display()))?;
    let headers = [
        ("username-headers", &args.requestheader_username_headers),
        ("uid-headers", &args.requestheader_uid_headers),
        ("group-headers", &args.requestheader_group_headers),
        ("extra-headers-prefix", &args.requestheader_extra_headers_prefix),
    ];
    for (flag, headers) in headers {
        if headers.iter().any(|it| it.trim().is_empty()) {
            return Err(format!("--requestheader-{flag}: empty value"));
        }
    }
    let trimmed = |list: &[String]| list.iter().map(|it| it.trim().to_owned()).collect();
    Ok(Some(FrontProxy {
        client_ca,
        allowed_names: args
            .requestheader_allowed_names
            .iter()
            .filter(|it| !it.is_empty())
            .cloned()
            .collect(),
        username_headers: trimmed(&args.requestheader_username_headers),
        uid_headers: trimmed(&args.requestheader_uid_headers),
        group_headers: trimmed(&args.requestheader_group_headers),
        extra_headers_prefix: trimmed(&args.requestheader_extra_headers_prefix),
        ..FrontProxy::default()
    }))
}
