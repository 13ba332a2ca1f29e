//! Headless Chromium, controlled over the DevTools protocol: a WebSocket on a port that Chromium chooses.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

/// Time limit of a command. To wait for a condition, tests send a single command that waits inside the page.
const PATIENCE: Duration = Duration::from_secs(60);

/// A page in a separate browser.
#[derive(Debug)]
pub(crate) struct Tab {
    child: Child,
    profile: PathBuf,
    socket: WebSocketStream<TcpStream>,
    session: Option<String>,
    next_id: u64,
}

impl Tab {
    /// Starts the browser with an empty profile.
    #[expect(
        clippy::disallowed_methods,
        reason = "the browser writes to a pipe, and time is real here"
    )]
    pub(crate) async fn open(program: &Path) -> Self {
        let profile = crate::common::folder();
        let mut child = Command::new(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args([
                "--disable-background-networking",
                "--disable-extensions",
                "--remote-debugging-port=0",
            ])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("DRYDOCK_BROWSER is the path of Chromium");
        // The browser prints its address when it is ready.
        let mut stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
        let url = loop {
            let mut line = String::new();
            let read = stderr.read_line(&mut line).expect("the output is UTF-8");
            assert!(read > 0, "the browser does not start");
            if let Some(url) = line.strip_prefix("DevTools listening on ") {
                break url.trim().to_owned();
            }
        };
        // The output must be read, because the browser would block otherwise.
        drop(std::thread::spawn(move || {
            std::io::copy(&mut stderr, &mut std::io::sink())
        }));
        let address = url.trim_start_matches("ws://").split('/').next().unwrap_or_default();
        let stream = TcpStream::connect(address)
            .await
            .expect("the server accepts connections");
        let (socket, _) = tokio_tungstenite::client_async(url, stream)
            .await
            .expect("the browser accepts a WebSocket");
        let mut tab = Self {
            child,
            profile,
            socket,
            session: None,
            next_id: 0,
        };
        let target = tab.command("Target.createTarget", json!({"url": "about:blank"})).await;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = tab.command("Target.attachToTarget", attach).await;
        tab.session = attached["sessionId"].as_str().map(str::to_owned);
        tab.command("Page.enable", json!({})).await;
        tab.looks(1280, 800, "light").await;
        tab
    }

    /// Sends a command, and returns its result.
    async fn command(&mut self, method: &str, params: Value) -> Value {
        let mut answer = self.answer(method, &params).await;
        assert!(answer["error"].is_null(), "{method} {params}: {answer}");
        answer["result"].take()
    }

    /// Sends a command, and returns its response, which contains a result or an error. Ignores other messages of the
    /// browser.
    async fn answer(&mut self, method: &str, params: &Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let sent = self.socket.send(Message::text(message.to_string()));
        sent.await.expect("the browser is connected");
        let answered = async {
            loop {
                let message = self.socket.next().await.expect("the browser is connected");
                let Message::Text(text) = message.expect("the connection is open") else {
                    continue;
                };
                let answer: Value = serde_json::from_str(&text).expect("the text is valid JSON");
                if answer["id"] == id {
                    break answer;
                }
            }
        };
        let answer = timeout(PATIENCE, answered).await;
        answer.unwrap_or_else(|_| panic!("the browser does not respond to {message}"))
    }

    /// Sets the size of the window and the colour scheme.
    pub(crate) async fn looks(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.command("Emulation.setDeviceMetricsOverride", size).await;
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.command("Emulation.setEmulatedMedia", features).await;
    }

    pub(crate) async fn go_to(&mut self, url: &str) {
        // The new document does not have this property. The location is less reliable, because the page can be
        // redirected or change it.
        self.eval("window.isLeft = true").await;
        let gone = self.command("Page.navigate", json!({"url": url})).await;
        assert!(gone["errorText"].is_null(), "{gone}");
        self.until("document.readyState === 'complete' && !window.isLeft").await;
    }

    /// Accepts any certificate, and permits pages to use the clipboard.
    pub(crate) async fn trust_everything(&mut self) {
        self.command("Security.setIgnoreCertificateErrors", json!({"ignore": true}))
            .await;
        let permissions = json!({"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]});
        self.command("Browser.grantPermissions", permissions).await;
    }

    /// Evaluates a JavaScript expression; a promise is awaited. If the tab opens another document meanwhile, evaluates
    /// the expression again in this document.
    pub(crate) async fn eval(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let mut answer = loop {
            let answer = self.answer("Runtime.evaluate", &params).await;
            if answer["error"]["message"] != "Inspected target navigated or closed" {
                break answer;
            }
        };
        assert!(answer["error"].is_null(), "{expression}: {answer}");
        let answer = answer["result"].take();
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true. It is evaluated in each animation frame.
    pub(crate) async fn until(&mut self, condition: &str) {
        let wait = format!(
            "new Promise((resolve) => {{ const end = performance.now() + 20000; const look = () => {{ \
             let is; try {{ is = {condition}; }} catch (error) {{ is = false; }} \
             if (is) resolve(true); else if (performance.now() > end) resolve(document.body?.innerText ?? ''); \
             else requestAnimationFrame(look); }}; look(); }})"
        );
        let came = self.eval(&wait).await;
        assert_eq!(came, true, "{condition}");
    }

    /// Clicks the middle of the element that an expression selects. Waits until the element has stayed at the same place
    /// for some frames, because lists move while objects arrive.
    pub(crate) async fn click(&mut self, element: &str) {
        let place = format!(
            "(async () => {{ let [place, same] = [[], 0]; for (let tries = 0; same < 8 && tries < 300; tries += 1) {{ \
             const it = {element}; it.scrollIntoView({{ block: 'nearest' }}); const box = it.getBoundingClientRect(); \
             const now = [box.x + box.width / 2, box.y + box.height / 2]; \
             same = String(now) === String(place) ? same + 1 : 0; place = now; \
             await new Promise(requestAnimationFrame); }} return place; }})()"
        );
        let place = self.eval(&place).await;
        for kind in ["mousePressed", "mouseReleased"] {
            let params = json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
            self.command("Input.dispatchMouseEvent", params).await;
        }
    }

    /// Presses a key: a character, or a name such as `Enter`.
    pub(crate) async fn press(&mut self, key: &str) {
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            "Tab" => 9,
            "ArrowUp" => 38,
            "ArrowDown" => 40,
            _ => key.chars().next().map_or(0, |it| u32::from(it.to_ascii_uppercase())),
        };
        let text = match key {
            "Enter" => "\r",
            it if it.chars().count() == 1 => it,
            _ => "",
        };
        let down = json!({"type": "keyDown", "key": key, "windowsVirtualKeyCode": code, "text": text});
        self.command("Input.dispatchKeyEvent", down).await;
        let up = json!({"type": "keyUp", "key": key, "windowsVirtualKeyCode": code});
        self.command("Input.dispatchKeyEvent", up).await;
    }

    /// Types text into the focused element.
    pub(crate) async fn type_text(&mut self, text: &str) {
        self.command("Input.insertText", json!({"text": text})).await;
    }

    /// Writes a screenshot of the page if `DRYDOCK_SCREENSHOTS` is set.
    pub(crate) async fn picture(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("DRYDOCK_SCREENSHOTS") else {
            return;
        };
        let shot = self.command("Page.captureScreenshot", json!({"format": "png"})).await;
        let bytes = BASE64_STANDARD
            .decode(shot["data"].as_str().expect("the value is a string"))
            .expect("the text is base64");
        std::fs::create_dir_all(&folder).expect("the directory can be created");
        std::fs::write(Path::new(&folder).join(format!("{name}.png")), bytes).expect("the file is writable");
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}
