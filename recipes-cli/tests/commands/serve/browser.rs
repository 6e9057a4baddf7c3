//! A headless Chromium, driven by its DevTools protocol over pipes.

use std::env;
use std::fs::{File, read_to_string};
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::lockctl::PATIENCE;

/// Messages use the descriptors 3 and 4, which a shell makes of its own two.
const PIPED: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >&2"#;

/// Without a sandbox, because root gets none. Without a proxy and names of other hosts, so that
/// anything the page needs from other hosts is missing.
const ARGUMENTS: [&str; 9] = [
    "--remote-debugging-pipe",
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--window-size=1280,1024",
];

/// Events that the page must never cause.
const COMPLAINTS: [&str; 4] = [
    "Log.entryAdded",
    "Page.javascriptDialogOpening",
    "Runtime.consoleAPICalled",
    "Runtime.exceptionThrown",
];

/// A browser with one page, killed when it is dropped.
pub(crate) struct Browser {
    process: Child,
    commands: ChildStdin,
    messages: BufReader<ChildStdout>,
    /// The session of the protocol for the page.
    session: Option<String>,
    last_id: u64,
    url: String,
    seen: Seen,
    profile: TempDir,
}

/// What the browser reported about the page.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) requests: Vec<String>,
    /// Errors, warnings and dialogues.
    pub(crate) complaints: Vec<String>,
    loads: usize,
}

impl Browser {
    /// Shows the page at the root of this address.
    pub(crate) async fn open(address: &str) -> Self {
        let mut browser = Self::start(format!("http://{address}/"));
        let blank = json!({"url": "about:blank"});
        let tab = browser.call("Target.createTarget", blank).await;
        let tab = json!({"targetId": tab["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", tab).await;
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({})).await;
        }
        let url = json!({"url": browser.url});
        browser.call("Page.navigate", url).await;
        while browser.seen.loads == 0 {
            let event = timeout(PATIENCE, browser.read()).await;
            let event = event.expect("the page does not come");
            browser.seen.note(&event, &browser.url);
        }
        browser.until("document.readyState === 'complete'").await;
        browser
    }

    fn start(url: String) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let errors = File::create(profile.path().join("stderr")).unwrap();
        let program = env::var_os("CHROMIUM").unwrap_or_else(|| "chromium".into());
        let mut command = Command::new("sh");
        command.args(["-c", PIPED]).arg(program).args(ARGUMENTS);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        command.env("TMPDIR", profile.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(errors).kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        Self {
            commands: process.stdin.take().unwrap(),
            messages: BufReader::new(process.stdout.take().unwrap()),
            process,
            session: None,
            last_id: 0,
            url,
            seen: Seen::default(),
            profile,
        }
    }

    /// Waits until an expression is true in the page. It is evaluated at each change of the page.
    /// Returns how old the page was then, in milliseconds.
    pub(crate) async fn until(&mut self, condition: &str) -> f64 {
        let patience = PATIENCE.as_millis();
        let promise = format!(
            "new Promise(done => {{
                const look = () => {{ if ({condition}) end(performance.now()); }};
                const watch = new MutationObserver(look);
                const end = found => {{ watch.disconnect(); clearTimeout(timer); done(found); }};
                const timer = setTimeout(end, {patience}, null);
                const all = {{ subtree: true, childList: true, characterData: true, attributes: true }};
                watch.observe(document, all);
                document.addEventListener('readystatechange', look);
                look();
            }})"
        );
        match self.value(&promise).await.as_f64() {
            Some(age) => age,
            None => {
                let text = self.value("document.body.innerText").await;
                panic!(
                    "never: {condition}\nthe page shows: {text}\n{:?}",
                    self.seen
                );
            }
        }
    }

    /// Waits until an expression has this value, as [`Browser::until`] does.
    pub(crate) async fn shows(&mut self, expression: &str, value: Value) -> f64 {
        let value = json!(value.to_string());
        self.until(&format!("JSON.stringify({expression}) === {value}"))
            .await
    }

    /// Asserts that an expression has this value now.
    pub(crate) async fn has(&mut self, expression: &str, value: Value) {
        assert_eq!(self.value(expression).await, value, "{expression}");
    }

    /// The value of an expression in the page, or of its promise.
    pub(crate) async fn value(&mut self, expression: &str) -> Value {
        let evaluate = json!({
            "expression": expression, "awaitPromise": true, "returnByValue": true,
        });
        let mut outcome = self.call("Runtime.evaluate", evaluate).await;
        let exception = &outcome["exceptionDetails"];
        assert!(exception.is_null(), "{expression}: {exception}");
        outcome["result"]["value"].take()
    }

    /// Clicks on the middle of an element, given as an expression.
    pub(crate) async fn click(&mut self, element: &str) {
        let at = self.press(element).await;
        self.release(at).await;
    }

    /// Presses the mouse button on the middle of an element, and returns the position.
    pub(crate) async fn press(&mut self, element: &str) -> Value {
        let middle = format!(
            "(element => {{
                element.scrollIntoView({{ block: 'center' }});
                const it = element.getBoundingClientRect();
                return {{ x: it.x + it.width / 2, y: it.y + it.height / 2 }};
            }})({element})"
        );
        let at = self.value(&middle).await;
        self.mouse("mousePressed", &at).await;
        at
    }

    /// Releases the mouse button at that position.
    pub(crate) async fn release(&mut self, at: Value) {
        self.mouse("mouseReleased", &at).await;
    }

    async fn mouse(&mut self, kind: &str, at: &Value) {
        let event = json!({
            "type": kind, "x": at["x"], "y": at["y"], "button": "left", "clickCount": 1,
        });
        self.call("Input.dispatchMouseEvent", event).await;
    }

    /// Types into the element that has the focus.
    pub(crate) async fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text})).await;
    }

    /// Ends the browser. Asserts that the page was loaded once, made requests only to its server,
    /// and caused no complaint.
    pub(crate) async fn close(mut self) -> Seen {
        self.session = None;
        self.call("Browser.close", json!({})).await;
        let ended = timeout(PATIENCE, self.process.wait()).await;
        ended.expect("the browser does not end").unwrap();
        let elsewhere = |it: &&String| !it.starts_with(&self.url);
        let elsewhere: Vec<_> = self.seen.requests.iter().filter(elsewhere).collect();
        assert!(elsewhere.is_empty(), "asked for {elsewhere:?}");
        assert!(self.seen.complaints.is_empty(), "{:?}", self.seen);
        assert_eq!(self.seen.loads, 1, "{:?}", self.seen);
        self.seen
    }

    /// Sends a command, and returns its answer.
    async fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let id = json!(self.last_id);
        let mut command = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        let mut command = command.to_string();
        command.push('\0');
        let answer = async {
            // If the browser has ended, its messages end too, and show why.
            self.commands.write_all(command.as_bytes()).await.ok();
            loop {
                let mut message = self.read().await;
                if message["id"] == id {
                    assert!(message["error"].is_null(), "{method}: {message}");
                    return message["result"].take();
                }
                self.seen.note(&message, &self.url);
            }
        };
        // The page itself gives up first.
        let answer = timeout(2 * PATIENCE, answer).await;
        answer.unwrap_or_else(|_| panic!("{method}: no answer"))
    }

    async fn read(&mut self) -> Value {
        let mut message = Vec::new();
        self.messages.read_until(0, &mut message).await.unwrap();
        if message.pop() != Some(0) {
            let said = read_to_string(self.profile.path().join("stderr")).unwrap();
            panic!("Chromium is not there (see scripts/requirements) or has ended: {said}");
        }
        serde_json::from_slice(&message).unwrap()
    }
}

impl Seen {
    fn note(&mut self, event: &Value, url: &str) {
        let (method, said) = (event["method"].as_str().unwrap(), &event["params"]);
        match method {
            "Network.requestWillBeSent" => {
                let asked = said["request"]["url"].as_str().unwrap();
                self.requests.push(asked.to_owned());
            }
            "Network.webSocketCreated" => self.requests.push(said["url"].to_string()),
            "Page.frameNavigated" if said["frame"]["url"] == url => self.loads += 1,
            _ if COMPLAINTS.contains(&method) => self.complaints.push(event.to_string()),
            _ => {}
        }
    }
}
