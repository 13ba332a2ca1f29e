//! A source that returns scripted responses and records its requests with their times.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use informer::Error;
use informer::cache::{Backoff, Body, ListOptions, ListWatch, ReflectorOptions, SharedInformer, WatchOptions};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::Status;
use kube::core::response::{StatusCause, StatusDetails};
use serde_json::{Value, json};
use tokio::time::Instant;

/// A scripted response.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// Sends a whole document or some lines, and ends the response.
    Text(String),
    /// Same as `Text`, after a delay.
    Late(Duration, String),
    /// Sends some lines, and keeps the connection open without sending further data.
    Silent(String),
    /// Accepts the request, but never responds.
    Never,
    /// Sends the response headers together with these lines after a delay, and keeps the connection open.
    Delayed(Duration, String),
    /// Sends the response headers after a delay, and ends the response.
    DelayedEnd(Duration),
    /// Sends the same line repeatedly, with a pause before each line.
    Endless(Duration, String),
    /// Sends some lines, and breaks the connection.
    Broken(String),
    Status(Box<Status>),
    Refused,
}

#[derive(Clone)]
pub(crate) struct Script {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    asked: Arc<Mutex<Vec<String>>>,
    began: Instant,
    can_stream: bool,
}

impl Script {
    /// Creates a source that does not support streaming lists.
    pub(crate) fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self {
            answers: Arc::new(Mutex::new(answers.into_iter().collect())),
            asked: Arc::default(),
            began: Instant::now(),
            can_stream: false,
        }
    }

    /// Creates a source that supports streaming lists.
    pub(crate) fn streaming(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self {
            can_stream: true,
            ..Self::new(answers)
        }
    }

    /// Runs an informer of the source for some time, without jitter. Returns the informer with the recorded requests.
    pub(crate) async fn run_for(&self, seconds: u64) -> (SharedInformer<ConfigMap>, Vec<String>) {
        self.run_with(seconds, options()).await
    }

    pub(crate) async fn run_with(
        &self,
        seconds: u64,
        options: ReflectorOptions<ConfigMap>,
    ) -> (SharedInformer<ConfigMap>, Vec<String>) {
        let informer = SharedInformer::<ConfigMap>::builder(self.clone())
            .reflector(options)
            .build()
            .expect("the options have no duplicates");
        let end = tokio::time::sleep(Duration::from_secs(seconds));
        informer.run(end).await.expect("the informer was not run before");
        (informer, self.asked.lock().expect("the lock is not poisoned").clone())
    }

    async fn answer(&self, what: String) -> Result<Body, Error> {
        let at = self.began.elapsed().as_secs_f64();
        self.asked
            .lock()
            .expect("the lock is not poisoned")
            .push(format!("{at:.1} {what}"));
        let answer = self.answers.lock().expect("the lock is not poisoned").pop_front();
        let text = |text: String| stream::iter([Ok(Bytes::from(text))]);
        Ok(match answer {
            Some(Answer::Text(it)) => Box::pin(text(it)),
            Some(Answer::Late(after, it)) => Box::pin(stream::once(async move {
                tokio::time::sleep(after).await;
                Ok(Bytes::from(it))
            })),
            Some(Answer::Silent(it)) => Box::pin(text(it).chain(stream::pending())),
            Some(Answer::Never) => std::future::pending().await,
            Some(Answer::Delayed(after, it)) => {
                tokio::time::sleep(after).await;
                Box::pin(text(it).chain(stream::pending()))
            }
            Some(Answer::Endless(pause, it)) => Box::pin(stream::unfold(it, move |it| async move {
                tokio::time::sleep(pause).await;
                Some((Ok(Bytes::from(it.clone())), it))
            })),
            Some(Answer::Broken(it)) => {
                let err = kube::Error::Service("connection reset by peer".into());
                Box::pin(text(it).chain(stream::iter([Err(err.into())])))
            }
            Some(Answer::Status(status)) => return Err(kube::Error::Api(status).into()),
            Some(Answer::DelayedEnd(after)) => {
                tokio::time::sleep(after).await;
                Box::pin(stream::empty())
            }
            Some(Answer::Refused) => {
                let refused = io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused");
                return Err(kube::Error::Service(Box::new(refused)).into());
            }
            None => Box::pin(stream::pending()),
        })
    }
}

impl ListWatch for Script {
    async fn list(&self, options: &ListOptions) -> Result<Body, Error> {
        let continued = if options.continue_token.is_empty() {
            String::new()
        } else {
            format!(" continue={}", options.continue_token)
        };
        self.answer(format!(
            "list {:?} limit={}{continued}",
            options.resource_version.to_string(),
            options.limit
        ))
        .await
    }

    async fn watch(&self, options: &WatchOptions) -> Result<Body, Error> {
        assert!((300..=600).contains(&options.timeout_seconds), "{options:?}");
        let what = if options.send_initial_events { "stream" } else { "watch" };
        self.answer(format!("{what} {:?}", options.resource_version.to_string()))
            .await
    }

    fn can_stream_lists(&self) -> bool {
        self.can_stream
    }

    fn name(&self) -> String {
        "a script".to_owned()
    }
}

/// Returns the default options without jitter.
pub(crate) fn options() -> ReflectorOptions<ConfigMap> {
    let mut options = ReflectorOptions::default();
    options.backoff = Backoff {
        jitter: 0.0,
        ..Backoff::default()
    };
    options
}

fn object(name: &str, version: u64) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": version.to_string()}})
}

/// Returns a list of objects at a version.
pub(crate) fn list(version: u64, objects: &[(&str, u64)]) -> Answer {
    page(version, objects, "")
}

/// Returns a page of a list; `more` is the token of the next page.
pub(crate) fn page(version: u64, objects: &[(&str, u64)], more: &str) -> Answer {
    let items: Vec<_> = objects.iter().map(|(name, version)| object(name, *version)).collect();
    let metadata = json!({"resourceVersion": version.to_string(), "continue": more});
    Answer::Text(json!({"kind": "ConfigMapList", "metadata": metadata, "items": items}).to_string())
}

/// Returns lines of a watch.
pub(crate) fn lines(events: &[(&str, &str, u64)]) -> String {
    let line = |(kind, name, version): &(&str, &str, u64)| {
        let object = match *kind {
            "BOOKMARK" => json!({"metadata": {"resourceVersion": version.to_string()}}),
            "END" => json!({"metadata": {
                "resourceVersion": version.to_string(), "annotations": {"k8s.io/initial-events-end": "true"},
            }}),
            _ => object(name, *version),
        };
        let kind = if *kind == "END" { "BOOKMARK" } else { kind };
        json!({"type": kind, "object": object}).to_string() + "\n"
    };
    events.iter().map(line).collect()
}

/// Returns a watch that sends these events and then stays open without further events.
pub(crate) fn silent(events: &[(&str, &str, u64)]) -> Answer {
    Answer::Silent(lines(events))
}

/// Returns a watch that sends these events and then ends.
pub(crate) fn ending(events: &[(&str, &str, u64)]) -> Answer {
    Answer::Text(lines(events))
}

pub(crate) fn status(code: u16, reason: &str) -> Status {
    Status::failure("as the script says", reason).with_code(code)
}

/// Returns the response of a request that fails.
pub(crate) fn failing(code: u16, reason: &str) -> Answer {
    Answer::Status(Box::new(status(code, reason)))
}

/// Returns the response of a server that has not reached the requested version.
pub(crate) fn too_large() -> Answer {
    let mut status = status(504, "Timeout");
    status.details = Some(StatusDetails {
        causes: vec![StatusCause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        }],
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        retry_after_seconds: 1,
    });
    Answer::Status(Box::new(status))
}

/// Returns a watch that sends these events and then an error event.
pub(crate) fn error_event(events: &[(&str, &str, u64)], code: u16, reason: &str) -> Answer {
    Answer::Text(lines(events) + &error_line(code, reason))
}

pub(crate) fn error_line(code: u16, reason: &str) -> String {
    json!({"type": "ERROR", "object": status(code, reason)}).to_string() + "\n"
}
