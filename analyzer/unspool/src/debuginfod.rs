//! Gets debug files and programs by build-id from debuginfod servers.
//!
//! Separate from the finder because only this module uses the network, and only if DEBUGINFOD_URLS
//! is set. The variables and the cache are those of elfutils (debuginfod-client-config(7)), so that
//! gdb, elfutils and Unspool share what each of them has downloaded.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use unspool_image::{Artifact, BuildId, Image, Open, Request, Servers, Unusable};

mod cache;
mod download;
mod server;

use cache::{Cache, Cached};
use download::{Download, Outcome};
use server::Server;

/// Default of DEBUGINFOD_TIMEOUT in seconds.
const DEFAULT_TIMEOUT: u64 = 90;

/// Default of DEBUGINFOD_MAXTIME in seconds.
const DEFAULT_MAX_TIME: u64 = 600;

/// Default of DEBUGINFOD_MAXSIZE in bytes: a server may send without end.
const DEFAULT_MAX_SIZE: u64 = 2 << 30;

/// The servers that DEBUGINFOD_URLS names, and the cache.
#[derive(Debug)]
struct Client {
    servers: Vec<Arc<Server>>,
    limits: Limits,
    cache: Cache,
    requests: Mutex<Requests>,
    problems: Mutex<Vec<String>>,
    cancelled: Arc<AtomicBool>,
    announced: AtomicBool,
}

/// The files that were requested in this run and are not at hand.
#[derive(Debug, Default)]
struct Requests {
    /// The servers sent no usable file.
    missing: HashSet<(BuildId, Artifact)>,
    /// True if a file was requested from the cache only that is not in `missing`.
    unasked: bool,
}

/// Limits of a download.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Longest time for each 100 KB.
    timeout: Option<Duration>,
    /// Longest time for a whole file.
    max_time: Option<Duration>,
    /// Largest file in bytes.
    max_size: u64,
}

/// The servers of this process. `None` if DEBUGINFOD_URLS names none.
///
/// There is one client, so that no part of the process asks a server again that did not answer.
pub(crate) fn servers() -> Option<Arc<dyn Servers>> {
    client().map(|client| client as Arc<dyn Servers>)
}

/// A flag that ends all downloads when it is set, now and later.
pub(crate) fn cancelled() -> Option<Arc<AtomicBool>> {
    client().map(|client| client.cancelled.clone())
}

/// Passes a sentence to `say` when the first download takes long.
pub(crate) fn announce(say: fn(&str)) {
    let _ = ANNOUNCE.set(say);
}

static ANNOUNCE: OnceLock<fn(&str)> = OnceLock::new();

fn client() -> Option<Arc<Client>> {
    static CLIENT: OnceLock<Option<Arc<Client>>> = OnceLock::new();
    let new = || Client::new(&|name| std::env::var(name).ok());
    CLIENT.get_or_init(|| new().map(Arc::new)).clone()
}

impl Client {
    /// Reads the settings from environment variables.
    fn new(variable: &dyn Fn(&str) -> Option<String>) -> Option<Client> {
        let limits = Limits::new(variable);
        let urls = variable("DEBUGINFOD_URLS")?;
        // elfutils has policies for signatures in this list, too.
        let urls = urls.split_ascii_whitespace();
        let urls = urls.filter(|url| !url.starts_with("ima:"));
        let servers: Vec<_> = urls.map(|url| Arc::new(Server::new(url))).collect();
        (!servers.is_empty()).then(|| Client {
            servers,
            limits,
            cache: Cache::new(variable),
            requests: Mutex::default(),
            problems: Mutex::default(),
            cancelled: Arc::default(),
            announced: AtomicBool::new(false),
        })
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_problem(&self, problem: String) {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    /// Asks all servers, and takes the first usable file.
    fn download(&self, request: &Request<'_>, open: &Open<'_>) -> Option<Image> {
        let mut asked = self.servers.clone();
        asked.retain(|server| server.is_usable());
        let mut is_missing = asked.len() == self.servers.len();
        while !asked.is_empty() && !self.cancelled.load(Ordering::Relaxed) {
            let path = format!("buildid/{}/{}", request.build_id, request.artifact.name());
            let (file, room) = match self.cache.unnamed_file(request) {
                Ok(new) => new,
                Err(error) => {
                    let reason = error.kind();
                    self.add_problem(format!("debug files cannot be downloaded: {reason}"));
                    return None;
                }
            };
            let download = Download {
                path: &path,
                limits: self.limits,
                room,
                cancelled: &self.cancelled,
                announced: &self.announced,
            };
            let outcome = download.run(&asked, file, &mut |server, why| {
                is_missing = false;
                self.add_problem(format!("debuginfod server {server} {why}"));
            });
            match outcome {
                Outcome::Received(server, file) => {
                    match self.accept(request, file, open) {
                        Ok(image) => return Some(image),
                        Err(why) => self.add_problem(format!(
                            "debuginfod server {} sent a wrong {} file for {}, which is not \
                             used: {why}",
                            asked[server],
                            request.artifact.name(),
                            request.name
                        )),
                    }
                    is_missing = false;
                    asked.remove(server);
                }
                Outcome::Broken(server) => {
                    asked.remove(server);
                }
                Outcome::Nothing => break,
            }
            asked.retain(|server| server.is_usable());
        }
        if is_missing && !self.cancelled.load(Ordering::Relaxed) {
            self.cache.keep_missing(request);
        }
        None
    }

    /// Opens a received file. Puts it into the cache only if it is the requested one.
    fn accept(
        &self,
        request: &Request<'_>,
        file: File,
        open: &Open<'_>,
    ) -> Result<Image, Unusable> {
        let own = file.try_clone().map_err(|_| Unusable::NoImage)?;
        let image = open(own, request.name)?;
        // If the cache does not take the file, the next run has to download it again. The image
        // then has no path on this machine.
        let kept = self.cache.keep(request, file).ok();
        Ok(kept.and_then(|path| opened(&path, open)).unwrap_or(image))
    }

    /// Opens a cached file. The cache is shared, so only a file of another build is removed: gdb
    /// and elfutils could not use it either.
    fn cached(&self, path: &Path, request: &Request<'_>, open: &Open<'_>) -> Option<Image> {
        let why = match File::open(path) {
            Ok(file) => match open(file, &path.display().to_string()) {
                Ok(image) => return Some(image),
                Err(why @ Unusable::OtherBuild { .. }) if !request.cached_only => {
                    self.cache.forget(request);
                    why.to_string()
                }
                Err(why) => why.to_string(),
            },
            Err(error) => reason(&error),
        };
        self.add_problem(format!("{} is not used: {why}", path.display()));
        None
    }
}

/// A file of the cache that was accepted before.
fn opened(path: &Path, open: &Open<'_>) -> Option<Image> {
    open(File::open(path).ok()?, &path.display().to_string()).ok()
}

impl Servers for Client {
    fn file(&self, request: &Request<'_>, open: &Open<'_>) -> Option<Image> {
        match self.cache.look(request) {
            Cached::File(path) => {
                if let Some(image) = self.cached(&path, request, open) {
                    return Some(image);
                }
            }
            Cached::Missing => return None,
            Cached::Unknown => {}
        }
        let file = (request.build_id.clone(), request.artifact);
        if self.requests().missing.contains(&file) {
            return None;
        }
        if request.cached_only {
            self.requests().unasked = true;
            return None;
        }
        let image = self.download(request, open);
        if image.is_none() {
            self.requests().missing.insert(file);
        }
        image
    }

    fn take_unasked(&self) -> bool {
        std::mem::take(&mut self.requests().unasked)
    }

    fn problems(&self) -> Vec<String> {
        let problems = self.problems.lock();
        problems.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Limits {
    fn new(variable: &dyn Fn(&str) -> Option<String>) -> Limits {
        let number = |name: &str| variable(name)?.trim().parse::<i64>().ok();
        let seconds = |number: i64| u64::try_from(number).ok().filter(|&seconds| seconds > 0);
        let timeout = number("DEBUGINFOD_TIMEOUT").unwrap_or(DEFAULT_TIMEOUT as i64);
        let max_time = number("DEBUGINFOD_MAXTIME").unwrap_or(DEFAULT_MAX_TIME as i64);
        let max_size = number("DEBUGINFOD_MAXSIZE").and_then(seconds);
        Limits {
            timeout: seconds(timeout).map(Duration::from_secs),
            max_time: seconds(max_time).map(Duration::from_secs),
            max_size: max_size.unwrap_or(DEFAULT_MAX_SIZE),
        }
    }
}

/// The kind of an error, without text that a server may have written.
fn reason(error: &io::Error) -> String {
    error.kind().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(variables: &[(&str, &str)]) -> Option<Client> {
        let value = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Client::new(&value)
    }

    #[test]
    fn urls_are_separated_by_blanks_and_shown_without_passwords() {
        let client = client(&[(
            "DEBUGINFOD_URLS",
            "ima:enforcing http://a:b@one/ \t https://two/path//",
        )]);
        let servers = client.expect("servers").servers;
        let shown: Vec<String> = servers.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["http://one", "https://two/path"]);
    }

    #[test]
    fn without_urls_there_is_no_client() {
        assert!(client(&[]).is_none());
        assert!(client(&[("DEBUGINFOD_URLS", " \t")]).is_none());
    }

    #[test]
    fn a_missing_file_is_asked_for_once_even_without_a_cache() {
        let served = tempfile::tempdir().expect("a directory");
        let url = format!("file://{}", served.path().display());
        let variables = [
            ("DEBUGINFOD_URLS", url.as_str()),
            ("DEBUGINFOD_CACHE_PATH", "/proc/none"),
        ];
        let client = client(&variables).expect("a client");
        let build_id = BuildId::new(&[0xab; 20]).expect("a build-id");
        let file = |cached_only| {
            let request = Request {
                build_id: &build_id,
                artifact: Artifact::DebugInfo,
                name: "program",
                cached_only,
            };
            let open = |file, name: &str| Image::of_file(file, name).map_err(|_| Unusable::NoImage);
            client.file(&request, &open)
        };
        assert!(!client.take_unasked());
        assert!(file(true).is_none());
        assert!(client.take_unasked() && !client.take_unasked());
        assert!(file(false).is_none());

        // The server has it now.
        let folder = served.path().join(format!("buildid/{build_id}"));
        std::fs::create_dir_all(&folder).expect("a directory");
        let own = std::env::current_exe().expect("a path");
        std::fs::copy(own, folder.join("debuginfo")).expect("a copy");
        assert!(file(false).is_none() && file(true).is_none());
        assert!(!client.take_unasked());
    }

    #[test]
    fn limits_are_set_as_for_elfutils() {
        let limits = |variables: &[(&str, &str)]| {
            let urls = [("DEBUGINFOD_URLS", "http://one")];
            client(&[&urls, variables].concat())
                .expect("a client")
                .limits
        };
        let usual = limits(&[]);
        assert_eq!(usual.timeout, Some(Duration::from_secs(90)));
        assert_eq!(usual.max_time, Some(Duration::from_secs(600)));
        assert_eq!(usual.max_size, 2 << 30);
        let set = limits(&[
            ("DEBUGINFOD_TIMEOUT", "-1"),
            ("DEBUGINFOD_MAXTIME", "7"),
            ("DEBUGINFOD_MAXSIZE", "8"),
        ]);
        assert_eq!(set.timeout, None);
        assert_eq!(set.max_time, Some(Duration::from_secs(7)));
        assert_eq!(set.max_size, 8);
        let zero = limits(&[
            ("DEBUGINFOD_TIMEOUT", "0"),
            ("DEBUGINFOD_MAXTIME", "0"),
            ("DEBUGINFOD_MAXSIZE", "0"),
        ]);
        assert_eq!((zero.timeout, zero.max_time), (None, None));
        assert_eq!(zero.max_size, DEFAULT_MAX_SIZE);
    }
}
