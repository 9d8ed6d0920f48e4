//! Opens the files that are needed, each only once.
//!
//! `collect` checks these files against what is mapped and unwinds with them, and `model` names
//! frames with them. Both need the same files in one run, and a C library with its debug file has
//! many megabytes. A file that was fetched from the target is fetched only once.

use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use unspool_image::{BuildId, Fetch, FindError, Finder, Image, Wanted};
use unspool_unwind::{Cache, CompileOptions, Table};

mod answers;
mod passages;
mod places;
mod vdso;

use passages::KnownAnswers;
pub use passages::Passages;
pub use places::{DataSymbol, Places};

use crate::maps;
use crate::platform::c_library::is_c_library;

/// Files that are downloaded at the same time.
const MAX_DOWNLOADS: usize = 8;

/// Finds files and keeps them open. Its clones share the open files.
#[derive(Clone, Debug, Default)]
pub struct Store {
    finder: Finder,
    /// Where results about files are kept for the next run.
    cache: Option<Cache>,
    opened: Arc<Mutex<HashMap<Key, Opened>>>,
    /// Files without build-ids that other files have replaced, by path, in order.
    earlier: Arc<Mutex<HashMap<String, Vec<Opened>>>>,
    passages: KnownAnswers,
}

/// Path on the target, build-id, and whether the target runs on this machine.
type Key = (String, Option<BuildId>, bool);

/// A file that was found.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The image with its debug file.
    pub image: Image,
    /// Its functions and lines.
    pub places: Arc<Places>,
    /// Problems with the file, one clause each.
    pub notes: Vec<String>,
    /// Requests for its missing parts were sent to the servers.
    asked: bool,
    /// The version of the local file; `None` without one.
    version: Option<Version>,
    /// The program has the file mapped, and its path no longer leads to it.
    pub is_replaced: bool,
}

/// Device, inode, size and time of the last change of a local file.
type Version = (u64, u64, u64, SystemTime);

impl From<Finder> for Store {
    fn from(finder: Finder) -> Store {
        Store {
            finder,
            cache: None,
            opened: Arc::default(),
            earlier: Arc::default(),
            passages: KnownAnswers::default(),
        }
    }
}

impl Store {
    /// Keeps unwind rules and the names of addresses in this cache.
    pub fn caching(mut self, cache: Option<Cache>) -> Store {
        self.cache = cache;
        self
    }

    /// A store that asks no servers, and shares the open files. For use while the program is
    /// stopped.
    pub fn at_hand(&self) -> Store {
        let mut store = self.clone();
        store.finder.cached_only = true;
        store
    }

    /// A store for a process of this machine. If the process is in another mount namespace, as in a
    /// container, the files are those that it sees, unless a sysroot is named.
    pub fn of_process(&self, pid: u32) -> Store {
        let mounts = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
        let has_others = mounts(&pid.to_string())
            .zip(mounts("self"))
            .is_some_and(|(its, own)| its != own);
        let mut store = self.clone();
        if has_others && store.finder.sysroot.is_none() {
            store.finder.sysroot = Some(format!("/proc/{pid}/root").into());
            store.finder.sysroot_is_live = true;
            store.opened = Arc::default();
            store.earlier = Arc::default();
        }
        store
    }

    /// True if missing files are downloaded.
    pub fn downloads(&self) -> bool {
        self.finder.servers.is_some() && !self.finder.cached_only
    }

    /// True if a file was missing since the last call, and no request was sent for it.
    pub fn take_unasked(&self) -> bool {
        let servers = self.finder.servers.as_ref().filter(|_| self.downloads());
        servers.is_some_and(|servers| servers.take_unasked())
    }

    /// Problems with the servers so far.
    pub fn server_problems(&self) -> Vec<String> {
        let servers = self.finder.servers.as_ref();
        servers.map_or_else(Vec::new, |servers| servers.problems())
    }

    /// The copy of the target's file system, and the debug directories besides the system's, as
    /// absolute paths. The root of a process is no copy.
    pub fn directories(&self) -> (Option<PathBuf>, Vec<PathBuf>) {
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let finder = &self.finder;
        let usual = Finder::default().debug_directories;
        let debug = finder.debug_directories.iter();
        let debug = debug
            .filter(|dir| !usual.contains(dir))
            .map(absolute)
            .collect();
        let sysroot = finder.sysroot.as_ref().filter(|_| !finder.sysroot_is_live);
        (sysroot.map(absolute), debug)
    }

    /// The unwind rules of a file.
    pub fn table(&self, image: &Image) -> Arc<Table> {
        let options = CompileOptions::default();
        Arc::new(match &self.cache {
            Some(cache) => cache.table(image, &options),
            None => Table::compile(image, &options),
        })
    }

    /// Exits and system calls of a file's functions. `None` if code of its architecture cannot be
    /// analysed.
    pub fn passages<'i>(&self, image: &'i Image) -> Option<Passages<'i>> {
        Passages::new(image, self.cache.as_ref(), &self.passages)
    }

    /// Keeps the rows that a table has by now. If the cache is not writable, that only costs time.
    pub fn keep_table(&self, table: &Table) {
        let _ = self.cache.as_ref().map(|cache| cache.keep(table));
    }

    /// Finds a file as [`Finder::find`] does, unless it was found before. Asks the servers once for
    /// what is missing.
    ///
    /// # Errors
    /// There is no such file, or it is not the right one.
    pub fn find(&self, wanted: &Wanted<'_>, fetch: Option<Fetch<'_>>) -> Result<Opened, FindError> {
        let key = key(wanted.path, wanted.build_id, wanted.local);
        if wanted.path == vdso::PATH
            && !self.opened().contains_key(&key)
            && let Some(image) = vdso::find(wanted.build_id)
        {
            self.put(wanted, self.open(image, Vec::new()));
        }
        // Held while a file is opened, so that other threads wait for the file instead of opening
        // it again. But no thread waits for a download of another.
        let mut opened = self.opened();
        let new = match opened.get(&key) {
            Some(known) if known.asked || !self.downloads() => return Ok(known.clone()),
            Some(known) => {
                let known = known.clone();
                drop(opened);
                self.completed(known, wanted.path)
            }
            None if self.downloads() => {
                drop(opened);
                let found = self.finder.find(wanted, fetch)?;
                self.open(found.image, found.notes)
            }
            None => {
                let found = self.finder.find(wanted, fetch)?;
                let new = self.open(found.image, found.notes);
                insert(&mut opened, key, wanted, &new);
                return Ok(new);
            }
        };
        insert(&mut self.opened(), key, wanted, &new);
        Ok(new)
    }

    /// Asks the servers for the debug files of a file that was found without them.
    fn completed(&self, known: Opened, path: &str) -> Opened {
        let (image, mut notes) = (known.image.clone(), Vec::new());
        let debug_file = |image: &Image| image.debug_image().map(Image::identity);
        let image = self.finder.attach_debug_file(image, None, path, &mut notes);
        let is_same = debug_file(&image) == debug_file(&known.image)
            && image.supplementary_image().is_some() == known.image.supplementary_image().is_some();
        notes.retain(|note| !known.notes.contains(note));
        notes.splice(0..0, known.notes.iter().cloned());
        match is_same {
            true => Opened {
                notes,
                asked: true,
                ..known
            },
            false => Opened {
                is_replaced: known.is_replaced,
                ..self.open(image, notes)
            },
        }
    }

    fn open(&self, image: Image, notes: Vec<String>) -> Opened {
        let version = version(image.name());
        Opened {
            places: Arc::new(Places::new(&image, self.cache.clone())),
            image,
            notes,
            asked: self.downloads(),
            version,
            is_replaced: false,
        }
    }

    /// Opens the file that a program of this machine has mapped, if the wanted path no longer leads
    /// to it. [`find`](Store::find) returns this file from now on.
    ///
    /// # Errors
    /// The file cannot be read, or it is not the right one.
    pub fn open_mapped(&self, wanted: &Wanted<'_>, file: &Path) -> Result<Opened, FindError> {
        let found = self.finder.open_mapped(wanted, file)?;
        let mut opened = self.open(found.image, found.notes);
        opened.is_replaced = true;
        let key = key(wanted.path, wanted.build_id, wanted.local);
        insert(&mut self.opened(), key, wanted, &opened);
        Ok(opened)
    }

    /// Number of the local `file` without a build-id among all files that had this path, from 0.
    /// Files that were opened earlier stay open for [`replaced`](Store::replaced).
    pub fn file_number(&self, path: &str, file: &str) -> u32 {
        let key = key(path, None, true);
        let mut opened = self.opened();
        let mut earlier = self.earlier();
        let known = earlier.entry(key.0.clone()).or_default();
        let current = version(file);
        if let Some(file) = opened.get(&key)
            && file.version.is_some()
            && file.version != current
        {
            if !known.iter().any(|known| known.version == file.version) {
                known.push(file.clone());
            }
            opened.remove(&key);
        }
        let at = known.iter().position(|known| known.version == current);
        if let Some(file) = at.and_then(|at| known.get(at)) {
            opened.insert(key, file.clone());
        }
        u32::try_from(at.unwrap_or(known.len())).unwrap_or(u32::MAX)
    }

    /// The file that had a path and this [number](Store::file_number), if another one replaced it.
    pub fn replaced(&self, path: &str, number: u32) -> Option<Opened> {
        let path = key(path, None, true).0;
        let earlier = self.earlier();
        earlier.get(&path)?.get(number as usize).cloned()
    }

    fn earlier(&self) -> MutexGuard<'_, HashMap<String, Vec<Opened>>> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self) -> MutexGuard<'_, HashMap<Key, Opened>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds several files at the same time, because each may have to be downloaded.
    pub fn find_together(&self, files: &[Wanted<'_>]) {
        for files in files.chunks(MAX_DOWNLOADS) {
            std::thread::scope(|scope| {
                for wanted in files {
                    // If there is no thread, the file is found when it is needed.
                    let find = move || self.find(wanted, None);
                    let _ = std::thread::Builder::new().spawn_scoped(scope, find);
                }
            });
        }
    }

    /// Makes [`find`](Store::find) return this file, and replaces what it has found before.
    pub fn put(&self, wanted: &Wanted<'_>, file: Opened) {
        let key = key(wanted.path, wanted.build_id, wanted.local);
        self.opened().insert(key, file);
    }

    /// Starts to open the files that are needed before a program runs: the program itself, its
    /// dynamic linker, and the C library of this process, which most programs have, too. A wrong
    /// guess does no harm.
    pub fn read_ahead_of_start(&self, program: PathBuf) {
        let store = self.clone();
        let read = move || {
            let find = |path: &str| {
                let wanted = Wanted {
                    path,
                    build_id: None,
                    local: true,
                };
                store.find(&wanted, None).ok()
            };
            let program = find(&program.to_string_lossy());
            let linker = program.and_then(|found| found.image.interpreter().map(str::to_owned));
            if let Some(linker) = linker.and_then(|path| find(&path)) {
                linker.image.symbols().named("_dl_debug_state");
            }
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
            let mut files = maps::files(&maps).filter(|file| is_c_library(file.path));
            if let Some(library) = files.next().and_then(|file| find(file.path)) {
                library.image.symbols().named("pthread_create");
                let cache = store.cache.as_ref();
                store.passages.read_ahead(&library.image, cache);
            }
        };
        // If there is no thread, the files are read when they are needed.
        let _ = std::thread::Builder::new()
            .name("files".to_owned())
            .spawn(read);
    }

    /// Starts to open the files that a local process's threads are sure to need, and to read their
    /// lines: the program and its C library. A wrong guess does no harm.
    pub fn read_ahead(&self, pid: u32) {
        let Ok(maps) = std::fs::read_to_string(format!("/proc/{pid}/maps")) else {
            return;
        };
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let is_program = |path: &str| Path::new(path) == program;
        let code = maps::files(&maps).filter(|file| file.executable);
        let paths = code.map(|file| file.path);
        let paths = paths.filter(|path| is_program(path) || is_c_library(path));
        for path in paths.collect::<BTreeSet<&str>>() {
            let (store, path) = (self.clone(), path.to_owned());
            let read = move || {
                let wanted = Wanted {
                    path: &path,
                    build_id: None,
                    local: true,
                };
                if let Ok(opened) = store.find(&wanted, None) {
                    opened.places.read_ahead();
                }
            };
            // If there is no thread, the file is read when it is needed.
            let _ = std::thread::Builder::new()
                .name("lines".to_owned())
                .spawn(read);
        }
    }
}

fn insert(opened: &mut HashMap<Key, Opened>, key: Key, wanted: &Wanted<'_>, new: &Opened) {
    if wanted.local && wanted.build_id.is_none() && new.image.build_id().is_some() {
        let known = self::key(wanted.path, new.image.build_id(), true);
        opened.insert(known, new.clone());
    }
    opened.insert(key, new.clone());
}

fn version(path: &str) -> Option<Version> {
    let file = std::fs::metadata(path).ok()?;
    let changed = file.modified().ok()?;
    Some((file.dev(), file.ino(), file.len(), changed))
}

/// A local file has one key, whatever path leads to it.
fn key(path: &str, build_id: Option<&BuildId>, local: bool) -> Key {
    let own = local.then(|| std::fs::canonicalize(path).ok()).flatten();
    let own = own.and_then(|path| path.into_os_string().into_string().ok());
    (
        own.unwrap_or_else(|| path.to_owned()),
        build_id.cloned(),
        local,
    )
}

impl Opened {
    /// Starts to read the debug information. A later lookup only waits for the rest.
    pub fn read_ahead(&self) {
        let places = self.places.clone();
        // If there is no thread, the file is read when it is needed.
        let _ = std::thread::Builder::new()
            .name("lines".to_owned())
            .spawn(move || places.read_ahead());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fetched_file_is_shared_by_all_clones() {
        let own = std::env::current_exe().expect("a path");
        let mut fetched = 0;
        let mut fetch = |path: &str| {
            fetched += 1;
            assert_eq!(path, "/nowhere/program");
            std::fs::read(&own).map_err(|error| error.to_string())
        };
        let wanted = Wanted {
            path: "/nowhere/program",
            build_id: None,
            local: false,
        };
        let store = Store::default();
        let clone = store.clone();
        assert!(clone.find(&wanted, None).is_err());
        let first = store.find(&wanted, Some(&mut fetch)).expect("fetched");
        let second = clone.find(&wanted, Some(&mut fetch)).expect("kept");
        assert!(clone.find(&wanted, None).is_ok());
        assert!(Arc::ptr_eq(&first.places, &second.places));
        assert_eq!(fetched, 1);
        first.read_ahead();
        assert_eq!(
            second.places.has_debug_information(),
            unspool_image::Locator::new(&first.image).has_debug_information()
        );
    }

    #[test]
    fn the_vdso_of_this_kernel_is_found_by_its_build_id() {
        let own = vdso::own().expect("a vDSO");
        let find = |build_id| {
            let wanted = Wanted {
                path: vdso::PATH,
                build_id,
                local: true,
            };
            Store::default().find(&wanted, None)
        };
        let found = find(own.build_id()).expect("found");
        assert_eq!(found.image.build_id(), own.build_id());
        assert!(find(None).is_err());
        let program = std::env::current_exe().expect("a path");
        let other = Image::open(&program).expect("this program");
        assert!(other.build_id().is_some() && find(other.build_id()).is_err());
    }

    #[test]
    fn a_replaced_file_is_opened_again() {
        let own = std::env::current_exe().expect("a path");
        let folder = std::env::temp_dir().join(format!("unspool-store-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("plugin.so");
        let path = path.to_str().expect("text");
        let wanted = Wanted {
            path,
            build_id: None,
            local: true,
        };
        let store = Store::default();
        let find = |from: &Path| {
            let _ = std::fs::remove_file(path);
            std::fs::copy(from, path).expect("a copy");
            let number = store.file_number(path, path);
            let found = store.find(&wanted, None).expect("found");
            (number, found.image.bytes().len() as u64)
        };
        let size = |path: &Path| std::fs::metadata(path).expect("a file").len();
        assert_eq!(find(&own), (0, size(&own)));
        let other = Path::new("/bin/true");
        assert_eq!(find(other), (1, size(other)));
        assert_eq!(store.file_number(path, path), 1);
        let first = store.replaced(path, 0).expect("kept");
        assert_eq!(first.image.bytes().len() as u64, size(&own));
        assert!(store.replaced(path, 1).is_none());
        std::fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn a_file_read_ahead_is_found_by_its_build_id_and_by_other_names() {
        let own = std::env::current_exe().expect("a path");
        let own = own.to_str().expect("text");
        let store = Store::default();
        let ahead = Wanted {
            path: own,
            build_id: None,
            local: true,
        };
        let first = store.find(&ahead, None).expect("this program");
        let (folder, name) = own.rsplit_once('/').expect("a path from the root");
        let again = Wanted {
            path: &format!("{folder}/./{name}"),
            build_id: first.image.build_id(),
            local: true,
        };
        let second = store.find(&again, None).expect("the same");
        assert!(Arc::ptr_eq(&first.places, &second.places));
    }
}
