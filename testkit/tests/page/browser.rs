//! Headless Chromium, controlled by the DevTools protocol over two pipes. Each message ends with a zero byte.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

/// A page in a separate browser.
#[derive(Debug)]
pub(crate) struct Tab {
    child: Child,
    folder: PathBuf,
    to_browser: ChildStdin,
    from_browser: BufReader<ChildStdout>,
    session: Option<String>,
    last_id: u64,
}

impl Tab {
    /// Writes a page to a file and opens it. The folder must be empty; it is removed at the end.
    pub(crate) fn open(program: &Path, folder: PathBuf, page: &str) -> Self {
        let file = folder.join("report.html");
        std::fs::write(&file, page).expect("the file is writable");
        // The browser reads from the file descriptor 3 and writes to 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 >/dev/null 2>&1"])
            .arg(program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args([
                "--no-first-run",
                "--disable-background-networking",
                "--disable-extensions",
            ])
            .args(["--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("DRYDOCK_BROWSER is the path of Chromium");
        let to_browser = child.stdin.take().expect("stdin is piped");
        let from_browser = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut tab = Self {
            child,
            folder,
            to_browser,
            from_browser,
            session: None,
            last_id: 0,
        };
        let target = tab.command("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = tab.command("Target.attachToTarget", attach);
        tab.session = attached["sessionId"].as_str().map(str::to_owned);
        tab.command("Page.enable", json!({}));
        tab.resize(1280, 800, "light");
        let url = format!("file://{}", file.display());
        let gone = tab.command("Page.navigate", json!({"url": url}));
        assert!(gone["errorText"].is_null(), "{gone}");
        tab.until(&format!(
            "document.readyState === 'complete' && location.href === {url:?}"
        ));
        tab
    }

    /// Sends a command and returns its result. Other messages of the browser are ignored.
    fn command(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let sent = self.to_browser.write_all(format!("{message}\0").as_bytes());
        sent.expect("the connection is open");
        loop {
            let mut answer = Vec::new();
            let read = self
                .from_browser
                .read_until(0, &mut answer)
                .expect("the browser sends data");
            assert!(read > 0, "the browser exited before it responded to {message}");
            answer.pop();
            let mut answer: Value = serde_json::from_slice(&answer).expect("the text is valid JSON");
            if answer["id"] == id {
                assert!(answer["error"].is_null(), "{message}: {answer}");
                return answer["result"].take();
            }
        }
    }

    /// Sets the size of the window, and the colour scheme.
    pub(crate) fn resize(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.command("Emulation.setDeviceMetricsOverride", size);
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.command("Emulation.setEmulatedMedia", features);
    }

    /// Returns the value of an expression of JavaScript, awaited if it is a promise.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let mut answer = self.command("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// Waits until an expression is true, for up to 20 seconds. It is evaluated in each animation frame.
    pub(crate) fn until(&mut self, condition: &str) {
        let wait = format!(
            "new Promise((resolve) => {{ const end = performance.now() + 20000; const look = () => {{ \
             let is; try {{ is = {condition}; }} catch (error) {{ is = false; }} \
             if (is) resolve(true); else if (performance.now() > end) resolve(document.body?.innerText ?? ''); \
             else requestAnimationFrame(look); }}; look(); }})"
        );
        let came = self.eval(&wait);
        assert_eq!(came, true, "{condition}");
    }

    /// Clicks the middle of an element, given as an expression.
    pub(crate) fn click(&mut self, element: &str) {
        let place = format!(
            "(() => {{ const it = {element}; it.scrollIntoView({{ block: 'nearest' }}); \
             const box = it.getBoundingClientRect(); \
             return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        );
        let place = self.eval(&place);
        for kind in ["mousePressed", "mouseReleased"] {
            let params = json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
            self.command("Input.dispatchMouseEvent", params);
        }
    }

    /// Presses a key: a character, or `Escape`.
    pub(crate) fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Escape" => (27, ""),
            key => (
                key.chars().next().map_or(0, |it| u32::from(it.to_ascii_uppercase())),
                key,
            ),
        };
        let down = json!({"type": "keyDown", "key": key, "windowsVirtualKeyCode": code, "text": text});
        self.command("Input.dispatchKeyEvent", down);
        let up = json!({"type": "keyUp", "key": key, "windowsVirtualKeyCode": code});
        self.command("Input.dispatchKeyEvent", up);
    }

    /// Inserts text into the element that has the focus.
    pub(crate) fn insert(&mut self, text: &str) {
        self.command("Input.insertText", json!({"text": text}));
    }

    /// Writes a screenshot of the page to the folder in `DRYDOCK_SCREENSHOTS`.
    pub(crate) fn picture(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("DRYDOCK_SCREENSHOTS") else {
            return;
        };
        let shot = self.command("Page.captureScreenshot", json!({"format": "png"}));
        let bytes = BASE64_STANDARD.decode(shot["data"].as_str().expect("the value is a string"));
        std::fs::create_dir_all(&folder).expect("the directory can be created");
        let file = Path::new(&folder).join(format!("{name}.png"));
        std::fs::write(file, bytes.expect("the text is base64")).expect("the file is writable");
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        // The browser may already have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
