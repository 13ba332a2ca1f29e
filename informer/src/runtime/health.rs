//! `Endpoints`: health checks and metrics of a process. Maps a path to a status and a body, and does not depend on an
//! HTTP server.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::text_of_panic;
use crate::metrics::Metrics;
use crate::reconcile::BoxError;

/// A health check. Implemented for all `Fn() -> Result<(), BoxError>`. A panic is treated as a failure.
pub trait Check: Send + Sync + 'static {
    /// Checks the process. Returns an error if it is unhealthy.
    fn check(&self) -> Result<(), BoxError>;
}

impl<F: Fn() -> Result<(), BoxError> + Send + Sync + 'static> Check for F {
    fn check(&self) -> Result<(), BoxError> {
        self()
    }
}

/// A check that always passes.
pub fn ping() -> Result<(), BoxError> {
    Ok(())
}

type Checks = BTreeMap<String, Arc<dyn Check>>;

/// The endpoints `/healthz`, `/readyz` and `/metrics`, in the format of controller-runtime. Clones share the checks.
///
/// ```
/// use informer::metrics::Metrics;
/// use informer::runtime::{Endpoints, ping};
///
/// let endpoints = Endpoints::new(&Metrics::new());
/// endpoints.add_healthz("ping", ping);
/// endpoints.add_readyz("database", || Err("it is down".into()));
/// assert_eq!(endpoints.answer("/healthz", "").code, 200);
/// assert_eq!(endpoints.answer("/readyz", "").code, 500);
/// assert_eq!(endpoints.answer("/readyz", "exclude=database").code, 200);
/// assert!(endpoints.answer("/healthz", "verbose").body.contains("[+]ping ok"));
/// ```
#[derive(Clone)]
pub struct Endpoints {
    metrics: Metrics,
    /// Guards the checks.
    checks: Arc<Mutex<BothChecks>>,
}

#[derive(Default)]
struct BothChecks {
    healthz: Checks,
    readyz: Checks,
}

/// Response of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointResponse {
    /// HTTP status code.
    pub code: u16,
    /// Value of the header `Content-Type`.
    pub content_type: &'static str,
    /// Body of the response.
    pub body: String,
}

impl Endpoints {
    /// Creates endpoints without checks. Both `/healthz` and `/readyz` then succeed.
    pub fn new(metrics: &Metrics) -> Self {
        Self {
            metrics: metrics.clone(),
            checks: Arc::default(),
        }
    }

    /// Adds a check to `/healthz`, or replaces the check with this name.
    pub fn add_healthz(&self, name: &str, check: impl Check) {
        self.with(|checks| checks.healthz.insert(name.to_owned(), Arc::new(check)));
    }

    /// Adds a check to `/readyz`, or replaces the check with this name.
    pub fn add_readyz(&self, name: &str, check: impl Check) {
        self.with(|checks| checks.readyz.insert(name.to_owned(), Arc::new(check)));
    }

    /// Responds to a GET request for a path. Supported query parameters are `verbose` and `exclude=NAME`.
    pub fn answer(&self, path: &str, query: &str) -> EndpointResponse {
        let parts: Vec<_> = path.trim_matches('/').split('/').collect();
        let checks = match parts[..] {
            ["metrics"] => return self.render(),
            ["healthz", ..] => self.with(|checks| checks.healthz.clone()),
            ["readyz", ..] => self.with(|checks| checks.readyz.clone()),
            _ => return text(404, "404 page not found\n"),
        };
        match parts[1..] {
            [] => all(parts[0], &checks, query),
            [name] => match checks.get(name) {
                // `ping` passes even if there is no check with this name.
                None if name == "ping" => text(200, "ok"),
                None => text(404, "404 page not found\n"),
                Some(check) => match outcome(&**check) {
                    Ok(()) => text(200, "ok"),
                    Err(err) => text(500, &format!("internal server error: {err}\n")),
                },
            },
            _ => text(404, "404 page not found\n"),
        }
    }

    fn render(&self) -> EndpointResponse {
        EndpointResponse {
            code: 200,
            content_type: "text/plain; version=0.0.4; charset=utf-8",
            body: self.metrics.render(),
        }
    }

    fn with<T>(&self, look: impl FnOnce(&mut BothChecks) -> T) -> T {
        look(&mut self.checks.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Runs a check. A panic is treated as a failure.
fn outcome(check: &dyn Check) -> Result<(), BoxError> {
    catch_unwind(AssertUnwindSafe(|| check.check()))
        .unwrap_or_else(|panic| Err(format!("panic: {}", text_of_panic(&*panic)).into()))
}

/// Runs all checks of a path. The reasons of failures are logged, but not part of the response.
fn all(path: &str, checks: &Checks, query: &str) -> EndpointResponse {
    let pairs = || query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let is_verbose = pairs().any(|(key, _)| key == "verbose");
    let excluded: Vec<_> = pairs()
        .filter(|(key, _)| *key == "exclude")
        .map(|(_, name)| name)
        .collect();
    let (mut body, mut has_failed) = (String::new(), false);
    for (name, check) in checks {
        if excluded.contains(&name.as_str()) {
            let _ = writeln!(body, "[+]{name} excluded: ok");
        } else if let Err(error) = outcome(&**check) {
            tracing::warn!(path, check = name, %error, "health check failed");
            has_failed = true;
            let _ = writeln!(body, "[-]{name} failed: reason withheld");
        } else {
            let _ = writeln!(body, "[+]{name} ok");
        }
    }
    if checks.is_empty() {
        body.push_str("[+]ping ok\n");
    }
    for name in excluded.into_iter().filter(|it| !checks.contains_key(*it)) {
        let _ = writeln!(
            body,
            "warn: some health checks cannot be excluded: no matches for {name:?}"
        );
    }
    if has_failed {
        let _ = writeln!(body, "{path} check failed");
        return text(500, &body);
    }
    if is_verbose {
        let _ = writeln!(body, "{path} check passed");
        return text(200, &body);
    }
    text(200, "ok")
}

fn text(code: u16, body: &str) -> EndpointResponse {
    EndpointResponse {
        code,
        content_type: "text/plain; charset=utf-8",
        body: body.to_owned(),
    }
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with(|checks| {
            f.debug_struct("Endpoints")
                .field("healthz", &checks.healthz.keys())
                .field("readyz", &checks.readyz.keys())
                .finish()
        })
    }
}
