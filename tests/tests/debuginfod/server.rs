//! A debuginfod server that gives one kind of answer, most of them wrong.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};

/// A text in wrong answers, which no message may repeat.
pub(crate) const TEXT: &str = "text of the server";

/// Time for which a connection stays open without an answer.
const SILENCE: Duration = Duration::from_secs(100);

/// The kind of answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The program's files, as a good server sends them.
    Files,
    Status(u16),
    /// No answer.
    Silence,
    /// Half of the file, then the end of the connection.
    Half,
    /// Half of the file, then nothing.
    Stall,
    /// A page, as portals of networks send it.
    Html,
    /// No HTTP.
    Garbage,
    /// The file of another build.
    OtherBuild,
    /// A file that is cut off, of the stated size.
    CutOff,
    /// A file without end.
    Endless,
    /// A redirection to itself.
    Redirect,
}

/// A server on the loopback interface. Its threads run until the process ends.
pub(crate) struct Server {
    address: String,
    paths: Arc<Mutex<Vec<String>>>,
    open: Arc<Mutex<bool>>,
}

impl Server {
    pub(crate) fn start(answer: Answer, folder: &Path, id: &str) -> Result<Server> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let server = Server {
            address: listener.local_addr()?.to_string(),
            paths: Arc::default(),
            open: Arc::new(Mutex::new(true)),
        };
        let (paths, open) = (server.paths.clone(), server.open.clone());
        let (folder, id) = (folder.to_owned(), id.to_owned());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if !*open.lock().expect("no panic") {
                    break;
                }
                let (paths, folder, id) = (paths.clone(), folder.clone(), id.clone());
                std::thread::spawn(move || answer.give(stream, &paths, &folder, &id));
            }
        });
        Ok(server)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The paths of all requests so far.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.paths.lock().expect("no panic").clone()
    }
}

/// Closes the port.
impl Drop for Server {
    fn drop(&mut self) {
        *self.open.lock().expect("no panic") = false;
        let _ = TcpStream::connect(&self.address);
    }
}

impl Answer {
    fn give(
        self,
        mut stream: TcpStream,
        paths: &Mutex<Vec<String>>,
        folder: &Path,
        id: &str,
    ) -> Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let request = lines.next().context("no request")??;
        for line in lines {
            if line?.is_empty() {
                break;
            }
        }
        let path = request.split(' ').nth(1).context("no path")?.to_owned();
        paths.lock().expect("no panic").push(path.clone());
        let file = file_of(folder, &path, id);
        let bytes = fs::read(folder.join("pool.debug"))?;
        let ok = |size: usize| format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n");
        match self {
            Answer::Files => match file {
                Some(file) => {
                    let bytes = fs::read(file)?;
                    stream.write_all(ok(bytes.len()).as_bytes())?;
                    stream.write_all(&bytes)?;
                }
                None => status(&mut stream, 404)?,
            },
            Answer::Status(code) => status(&mut stream, code)?,
            Answer::Silence => std::thread::sleep(SILENCE),
            Answer::Half | Answer::Stall => {
                stream.write_all(ok(bytes.len()).as_bytes())?;
                stream.write_all(&bytes[..bytes.len() / 2])?;
                if self == Answer::Stall {
                    std::thread::sleep(SILENCE);
                }
            }
            Answer::Html => {
                let page = format!("<html>\x1b[31m{TEXT}</html>");
                stream.write_all(ok(page.len()).as_bytes())?;
                stream.write_all(page.as_bytes())?;
            }
            Answer::Garbage => stream.write_all(format!("\x1b[31m{TEXT}\r\n\r\n").as_bytes())?,
            Answer::OtherBuild => {
                let other = of_other_build(&bytes, id).context("no build-id in the file")?;
                stream.write_all(ok(other.len()).as_bytes())?;
                stream.write_all(&other)?;
            }
            Answer::CutOff => {
                let size = bytes.len() / 2;
                stream.write_all(ok(size).as_bytes())?;
                stream.write_all(&bytes[..size])?;
            }
            Answer::Endless => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
                stream.write_all(&bytes)?;
                while stream.write_all(&[0; 4096]).is_ok() {}
            }
            Answer::Redirect => {
                let head = format!("HTTP/1.1 302 Found\r\nLocation: {path}\r\n");
                stream.write_all(head.as_bytes())?;
                stream.write_all(b"Content-Length: 0\r\n\r\n")?;
            }
        }
        Ok(())
    }
}

fn status(stream: &mut TcpStream, code: u16) -> Result<()> {
    let text = format!("\x1b[31m{TEXT}");
    let head = format!(
        "HTTP/1.1 {code} {TEXT}\r\nContent-Length: {}\r\n\r\n",
        text.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(text.as_bytes())?;
    Ok(())
}

/// The file for a URL. Only the program's build-id is known.
fn file_of(folder: &Path, path: &str, id: &str) -> Option<PathBuf> {
    let artifact = path.strip_prefix(&format!("/buildid/{id}/"))?;
    let name = match artifact {
        "debuginfo" => "pool.debug",
        "executable" => "executable",
        _ => return None,
    };
    Some(folder.join(name)).filter(|file| file.is_file())
}

/// The same file with another build-id.
fn of_other_build(bytes: &[u8], id: &str) -> Option<Vec<u8>> {
    let digits = (0..id.len()).step_by(2);
    let id: Vec<u8> = digits
        .map(|at| u8::from_str_radix(&id[at..at + 2], 16).ok())
        .collect::<Option<_>>()?;
    let at = bytes.windows(id.len()).position(|window| window == id)?;
    let mut bytes = bytes.to_owned();
    bytes[at] ^= 0xff;
    Some(bytes)
}
