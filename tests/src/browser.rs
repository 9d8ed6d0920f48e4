//! Real browsers without a window: Chromium through ChromeDriver, Firefox through its Marionette.
//!
//! Both use WebDriver's commands, one over HTTP, the other over its own socket. Separate from the
//! trials, which are the same for both browsers.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{self, Background};

/// Time for a browser to start, and for each command.
const LIMIT: Duration = Duration::from_secs(120);

/// A browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Debian's `chromium`.
    Chromium,
    /// Debian's `firefox-esr`.
    Firefox,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 2] = [Kind::Chromium, Kind::Firefox];

    /// Its name in trials.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Chromium => "chromium",
            Kind::Firefox => "firefox",
        }
    }
}

enum Link {
    /// ChromeDriver's port and the session.
    Http { port: u16, session: String },
    /// Marionette's connection and the number of the next command.
    Marionette { stream: TcpStream, next: u64 },
}

/// A browser that runs, with one window.
pub struct Browser {
    link: Link,
    // Killed when dropped; then its profile can go.
    _process: Background,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser with a new profile.
    pub fn start(kind: Kind) -> Result<Browser> {
        match kind {
            Kind::Chromium => Browser::chromium(),
            Kind::Firefox => Browser::firefox(),
        }
    }

    fn chromium() -> Result<Browser> {
        let profile = tempfile::tempdir()?;
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").stdout(Stdio::piped());
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let mut process = Background(process::start(&mut command)?);
        let output = process.0.stdout.take().context("piped")?;
        let mut lines = BufReader::new(output).lines();
        let port = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| {
                let (_, port) = line.split_once("started successfully on port ")?;
                port.trim_end_matches('.').parse().ok()
            })
            .context("chromedriver names no port")?;
        // It blocks when its output is not read.
        std::thread::spawn(move || lines.for_each(drop));
        let mut arguments = vec![
            "--headless=new".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-background-networking".to_owned(),
            // A page must not depend on the network.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1".to_owned(),
            "--window-size=1300,900".to_owned(),
            format!("--user-data-dir={}", profile.path().display()),
        ];
        if nix::unistd::geteuid().is_root() {
            arguments.push("--no-sandbox".to_owned());
        }
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let answer = http(port, "POST", "/session", Some(&capabilities))?;
        let session = answer["sessionId"].as_str().context("no session")?;
        Ok(Browser {
            link: Link::Http {
                port,
                session: session.to_owned(),
            },
            _process: process,
            _profile: profile,
        })
    }

    fn firefox() -> Result<Browser> {
        let profile = tempfile::tempdir()?;
        fs::write(
            profile.path().join("user.js"),
            "user_pref(\"marionette.port\", 0);\n\
             user_pref(\"datareporting.policy.dataSubmissionEnabled\", false);\n\
             user_pref(\"app.update.enabled\", false);\n\
             user_pref(\"browser.shell.checkDefaultBrowser\", false);\n",
        )?;
        let mut command = Command::new("firefox-esr");
        command.args(["--headless", "--marionette", "--no-remote"]);
        command.args(["--width", "1300", "--height", "900", "--profile"]);
        command.arg(profile.path());
        command.env("HOME", profile.path());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null());
        let process = Background(process::start(&mut command)?);
        let port = profile.path().join("MarionetteActivePort");
        let mut stream = None;
        process::wait_until("Firefox listens", LIMIT, || {
            stream = connect(&port);
            stream.is_some()
        })?;
        let mut stream = stream.context("connected")?;
        stream.set_read_timeout(Some(LIMIT))?;
        receive(&mut stream)?;
        let mut browser = Browser {
            link: Link::Marionette { stream, next: 1 },
            _process: process,
            _profile: profile,
        };
        browser.command("", "WebDriver:NewSession", "POST", json!({}))?;
        Ok(browser)
    }

    /// Opens a file, `fragment` with its `#`.
    pub fn open(&mut self, page: &Path, fragment: &str) -> Result<()> {
        let mut url = String::from("file://");
        for byte in page.to_str().context("a path in UTF-8")?.bytes() {
            match byte {
                b'/' | b'.' | b'-' | b'_' => url.push(char::from(byte)),
                byte if byte.is_ascii_alphanumeric() => url.push(char::from(byte)),
                byte => url += &format!("%{byte:02X}"),
            }
        }
        // A page that differs in its fragment only is not loaded again.
        self.go("about:blank")?;
        self.go(&(url + fragment))
    }

    /// Opens an address.
    pub fn go(&mut self, url: &str) -> Result<()> {
        let parameters = json!({"url": url});
        self.command("/url", "WebDriver:Navigate", "POST", parameters)?;
        Ok(())
    }

    /// Gives the window this size in pixels, with its borders.
    pub fn resize(&mut self, width: u64, height: u64) -> Result<()> {
        let parameters = json!({"width": width, "height": height});
        self.command(
            "/window/rect",
            "WebDriver:SetWindowRect",
            "POST",
            parameters,
        )?;
        Ok(())
    }

    /// Runs the body of a function in the page, with these arguments, and gives what it returns.
    pub fn run(&mut self, script: &str, arguments: Value) -> Result<Value> {
        let parameters = json!({"script": script, "args": arguments});
        self.command(
            "/execute/sync",
            "WebDriver:ExecuteScript",
            "POST",
            parameters,
        )
        .with_context(|| format!("script {script}"))
    }

    /// Waits until a script gives something other than false and null.
    pub fn wait(&mut self, script: &str) -> Result<Value> {
        let mut last = Ok(Value::Null);
        process::wait_until(script, LIMIT, || {
            std::thread::sleep(Duration::from_millis(20));
            last = self.run(script, json!([]));
            !matches!(last, Ok(Value::Null | Value::Bool(false)))
        })?;
        last
    }

    /// Presses and releases keys, one after the other. WebDriver's codes stand for special keys.
    pub fn keys(&mut self, keys: &[&str]) -> Result<()> {
        let actions = keys
            .iter()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key})));
        let actions: Vec<Value> = actions.collect();
        self.act(json!([{"type": "key", "id": "keyboard", "actions": actions}]))
    }

    /// Moves the mouse to `from`, presses its button, moves to `to` and releases it.
    pub fn drag(&mut self, from: (i64, i64), to: (i64, i64)) -> Result<()> {
        let to_point =
            |(x, y): (i64, i64)| json!({"type": "pointerMove", "duration": 20, "x": x, "y": y});
        self.act(json!([{"type": "pointer", "id": "mouse", "actions": [
            to_point(from),
            {"type": "pointerDown", "button": 0},
            to_point(((from.0 + to.0) / 2, to.1)),
            to_point(to),
            {"type": "pointerUp", "button": 0},
        ]}]))
    }

    /// Turns the mouse's wheel at a point.
    pub fn wheel(&mut self, (x, y): (i64, i64), by: i64) -> Result<()> {
        self.act(json!([{"type": "wheel", "id": "wheel", "actions": [
            {"type": "scroll", "x": x, "y": y, "deltaX": 0, "deltaY": by, "duration": 20},
        ]}]))
    }

    fn act(&mut self, actions: Value) -> Result<()> {
        let parameters = json!({"actions": actions});
        self.command("/actions", "WebDriver:PerformActions", "POST", parameters)?;
        Ok(())
    }

    /// The output of the browser's console. Empty for Firefox, which shows its console only to
    /// privileged code.
    pub fn console(&mut self) -> Result<Vec<String>> {
        let Link::Http { .. } = self.link else {
            return Ok(Vec::new());
        };
        let log = self.command("/se/log", "", "POST", json!({"type": "browser"}))?;
        let lines = log.as_array().into_iter().flatten();
        Ok(lines.map(Value::to_string).collect())
    }

    fn command(&mut self, path: &str, name: &str, method: &str, body: Value) -> Result<Value> {
        match &mut self.link {
            Link::Http { port, session } => http(
                *port,
                method,
                &format!("/session/{session}{path}"),
                Some(&body),
            ),
            Link::Marionette { stream, next } => {
                let number = *next;
                *next += 1;
                let text = json!([0, number, name, body]).to_string();
                write!(stream, "{}:{text}", text.len())?;
                let answer = receive(stream)?;
                ensure!(
                    answer[1] == number,
                    "an answer to another command: {answer}"
                );
                ensure!(answer[2].is_null(), "{name}: {}", answer[2]);
                let result = &answer[3];
                Ok(result.get("value").unwrap_or(result).clone())
            }
        }
    }
}

/// A connection to the port that is in this file by now.
fn connect(port: &Path) -> Option<TcpStream> {
    let port: u16 = fs::read_to_string(port).ok()?.trim().parse().ok()?;
    TcpStream::connect(("127.0.0.1", port)).ok()
}

/// One message of Marionette: its length in decimal, a colon, JSON.
fn receive(stream: &mut TcpStream) -> Result<Value> {
    let mut length = 0_usize;
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        match byte[0] {
            b':' => break,
            digit if digit.is_ascii_digit() => length = length * 10 + usize::from(digit - b'0'),
            other => bail!("no length of a message: {other:#x}"),
        }
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message)?;
    Ok(serde_json::from_slice(&message)?)
}

/// A command to ChromeDriver, which closes the connection when it has answered.
fn http(port: u16, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
    let body = body.map_or_else(String::new, Value::to_string);
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(LIMIT))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut reader = BufReader::new(stream);
    let mut length = None;
    loop {
        let mut line = String::new();
        ensure!(
            reader.read_line(&mut line)? > 0,
            "no answer from chromedriver"
        );
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = Some(value.trim().parse()?);
        }
    }
    let mut answer = vec![0; length.context("chromedriver gives no length")?];
    reader.read_exact(&mut answer)?;
    let answer: Value = serde_json::from_slice(&answer)?;
    let value = answer["value"].clone();
    ensure!(value.get("error").is_none(), "{method} {path}: {value}");
    Ok(value)
}
