//! The images mapped in the target, with their files and unwind rules.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unspool_capture::{ModuleLoaded, ModuleUnloaded, Severity};
use unspool_image::{BuildId, FindError, Image, Wanted};
use unspool_unwind::{Module, ModuleMap, Table};

use super::generated_code::{GeneratedCodeSearch, UnknownCode, empty_map};
use super::memory::{ImageStart, PT_LOAD};
use super::place::Place;
use super::rendezvous::Listed;
use super::replaced_file;
use super::session::Session;
use super::sink::Sink;
use crate::platform::STUB_CODE;
use crate::platform::abi::Abi;
use crate::store::{Opened, Store};

/// Maximum size in bytes of a vDSO.
const VDSO_LIMIT: usize = 256 << 10;

/// One mapped image.
#[derive(Debug, Clone)]
pub(super) struct Mapped {
    pub(super) id: u32,
    pub(super) path: String,
    /// The path of the link by which the program was started.
    link: Option<String>,
    pub(super) bias: u64,
    pub(super) image: Option<Image>,
    /// Build-id of the file, or of the mapped image if there is no file.
    pub(super) build_id: Option<BuildId>,
    /// The reason for a missing image.
    pub(super) problem: Option<String>,
    table: Option<Arc<Table>>,
    file: Option<Opened>,
    pub(super) start: u64,
    end: u64,
}

impl Mapped {
    /// The module in another process, with the same addresses.
    pub(super) fn elsewhere(&self) -> ModuleLoaded {
        let build_id = self.build_id.as_ref();
        ModuleLoaded {
            path: self.path.clone(),
            bias: self.bias,
            start: self.start,
            end: self.end,
            build_id: build_id.map_or_else(Vec::new, |id| id.as_bytes().to_vec()),
            ..ModuleLoaded::default()
        }
    }

    /// All paths by which users may name the module.
    pub(super) fn paths(&self) -> Vec<&str> {
        let link = self.link.as_deref().into_iter();
        link.chain([self.path.as_str()]).collect()
    }

    /// Whether it is mapped at `avma`.
    pub(super) fn contains(&self, avma: u64) -> bool {
        (self.start..self.end).contains(&avma)
    }

    /// The unwind rules of its image.
    pub(super) fn table(&self) -> Option<&Arc<Table>> {
        self.table.as_ref()
    }

    /// All functions with this name.
    pub(super) fn functions(&self, name: &str) -> Vec<Place> {
        let Some(image) = &self.image else {
            return Vec::new();
        };
        let symbols = image.symbols().named(name);
        symbols
            .into_iter()
            .filter(|symbol| symbol.kind == unspool_image::SymbolKind::Function)
            .map(|symbol| Place {
                address: symbol.svma.wrapping_add(self.bias),
                movable: 0,
                thumb: symbol.thumb,
                function: symbol.name.to_owned(),
                module: Some(self.id),
            })
            .collect()
    }
}

/// All modules of the target.
pub(super) struct Modules {
    mapped: Vec<Mapped>,
    map: ModuleMap,
    store: Store,
    last_id: u32,
    generated_code: GeneratedCodeSearch,
}

/// A module to be added.
#[derive(Debug, Clone, Default)]
pub(super) struct Adding {
    pub(super) path: String,
    pub(super) bias: u64,
    /// The address of its mapped ELF header, if different from the bias.
    pub(super) header: Option<u64>,
    pub(super) executable: bool,
    /// The path by which the executable was started.
    pub(super) started_as: String,
    /// `started_as` is a link to the executable.
    pub(super) started_by_link: bool,
    /// The file on this machine, if the user named it.
    pub(super) file: Option<PathBuf>,
    /// Its number among the files of its path, if it has no build-id.
    pub(super) file_number: Option<u32>,
}

/// Number of code bytes that are compared.
const COMPARED_CODE: usize = 1024;

/// True if the module's code in memory begins like the file's code.
fn has_code_of(session: &mut Session, image: &Image, bias: u64) -> bool {
    let Some(text) = image.section(".text") else {
        return true;
    };
    let expected = &text.data[..text.data.len().min(COMPARED_CODE)];
    let at = text.svma.wrapping_add(bias);
    let mapped = session.client.read_memory(at, expected.len());
    mapped.is_ok_and(|mapped| mapped == expected)
}

impl Modules {
    pub(super) fn new(store: Store, abi: &Abi) -> Self {
        Self {
            mapped: Vec::new(),
            map: empty_map(abi),
            store,
            last_id: 0,
            generated_code: GeneratedCodeSearch::default(),
        }
    }

    pub(super) fn map(&self) -> &ModuleMap {
        &self.map
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Saves the unwind rules compiled during the recording for the next run.
    pub(super) fn keep_tables(&self) {
        for table in self
            .mapped
            .iter()
            .filter_map(|mapped| mapped.table.as_ref())
        {
            self.store.keep_table(table);
        }
    }

    pub(super) fn get(&self, id: u32) -> Option<&Mapped> {
        self.mapped.iter().find(|mapped| mapped.id == id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Mapped> {
        self.mapped.iter()
    }

    /// The module mapped at `avma`.
    pub(super) fn at(&self, avma: u64) -> Option<&Mapped> {
        self.mapped.iter().find(|mapped| mapped.contains(avma))
    }

    /// Name of the function at `avma` in the symbol table.
    pub(super) fn function_at(&self, avma: u64) -> Option<String> {
        let mapped = self.at(avma)?;
        let symbol = mapped
            .image
            .as_ref()?
            .symbols()
            .containing(avma.wrapping_sub(mapped.bias))?;
        Some(symbol.name.to_owned())
    }

    /// True if `avma` belongs to libstdc++'s start routine, which may be linked into the program.
    /// libstdc++ begins all threads there.
    pub(super) fn begins_cxx_threads(&self, avma: u64) -> bool {
        const LIBRARY: &str = "libstdc++.so";
        let Some(mapped) = self.at(avma) else {
            return false;
        };
        let name = mapped.path.rsplit('/').next().unwrap_or(&mapped.path);
        if name.starts_with(LIBRARY) {
            return true;
        }
        // The symbols of a large program take long to read, so ask its short list of libraries.
        let image = mapped.image.as_ref();
        let mut needed = image
            .map_or(&[][..], |image| &image.dynamic().needed)
            .iter();
        !needed.any(|needed| needed.starts_with(LIBRARY))
            && self.function_at(avma).as_deref() == Some("execute_native_thread_routine")
    }

    /// Adds a module: finds its file, checks it against the mapped memory, compiles its unwind
    /// rules.
    pub(super) fn add(
        &mut self,
        session: &mut Session,
        sink: &mut Sink,
        mut adding: Adding,
    ) -> u32 {
        let (bias, header) = (adding.bias, adding.header.unwrap_or(adding.bias));
        let (client, abi) = (&mut session.client, &session.abi);
        let start = ImageStart::read(client, header);
        let headers = start
            .as_ref()
            .and_then(|start| start.program_headers(client, abi))
            .unwrap_or_default();
        let mapped_id = start.and_then(|start| start.build_id(client, &headers, bias));
        if !adding.path.starts_with('/') {
            adding.path = session.mapped_file(header).unwrap_or(adding.path);
        }
        let mut named = None;
        if let Some(file) = &adding.file {
            let found = self.find_named(session, file, &adding.path, bias, mapped_id.as_ref());
            if let Err(why) = &found {
                let note = format!("the file named with --exec is not used: {why}");
                sink.note(Severity::Warning, note);
            }
            named = found.ok();
        }
        let is_compared = session.local && mapped_id.is_none() && named.is_none();
        if is_compared {
            let behind = replaced_file::on_this_machine(session, &adding.path, header);
            let file = behind.as_ref().unwrap_or(&adding.path);
            adding.file_number = Some(self.store.file_number(&adding.path, file));
        }
        let found = match named.clone() {
            Some(named) => Ok(named),
            None => self.find(session, &adding.path, header, mapped_id.as_ref()),
        };
        let (file, problem) = match found {
            Ok(file) => (Some(file), None),
            Err(error) => (None, Some(error.to_string())),
        };
        for note in file.iter().flat_map(|file| &file.notes) {
            sink.note(Severity::Warning, note.clone());
        }
        let image = file.as_ref().map(|file| file.image.clone());
        // A local server may give a path relative to the recorder's directory. Make it absolute,
        // because the report may run in any directory.
        if image
            .as_ref()
            .is_some_and(|image| image.name() == adding.path)
            && let Ok(path) = std::path::absolute(&adding.path)
        {
            adding.path = path.to_string_lossy().into_owned();
        }
        let loads: Vec<(u64, u64)> = match &image {
            Some(image) => image
                .segments()
                .iter()
                .map(|s| (s.svma, s.mem_size))
                .collect(),
            None => headers
                .iter()
                .filter(|h| h.kind == PT_LOAD)
                .map(|h| (h.svma, h.mem_size))
                .collect(),
        };
        let build_id = mapped_id.or_else(|| image.as_ref()?.build_id().cloned());
        adding.file_number = adding.file_number.filter(|_| build_id.is_none());
        if let Some(named) = named {
            let wanted = Wanted {
                path: &adding.path,
                build_id: build_id.as_ref(),
                local: session.local,
            };
            self.store.put(&wanted, named);
        }
        let id = self.insert(session, sink, adding, image, problem, build_id, &loads);
        if let Some(mapped) = self.mapped.last_mut() {
            mapped.file = file;
        }
        id
    }

    /// Starts to read the line tables of the program and of the modules at these addresses.
    pub(super) fn read_ahead(&self, avmas: Vec<u64>) {
        let ids = avmas.into_iter();
        let ids: BTreeSet<u32> = ids.filter_map(|avma| Some(self.at(avma)?.id)).collect();
        for (index, mapped) in self.mapped.iter().enumerate() {
            if let Some(file) = &mapped.file
                && (index == 0 || ids.contains(&mapped.id))
            {
                file.read_ahead();
            }
        }
    }

    /// Adds the vDSO, whose only copy is in the target's memory.
    pub(super) fn add_vdso(&mut self, session: &mut Session, sink: &mut Sink, address: u64) {
        let (client, abi) = (&mut session.client, &session.abi);
        let start = ImageStart::read(client, address);
        let Some(headers) = start.and_then(|start| start.program_headers(client, abi)) else {
            return;
        };
        let Some(load) = headers.iter().find(|header| header.kind == PT_LOAD) else {
            return;
        };
        let bias = address.wrapping_sub(load.svma.wrapping_sub(load.offset));
        // The section headers follow the loaded part, usually within its last page.
        let len = usize::try_from(load.file_size)
            .unwrap_or(0)
            .next_multiple_of(4096)
            .min(VDSO_LIMIT);
        let Ok(bytes) = session.client.read_memory(address, len) else {
            return;
        };
        let Ok(image) = Image::parse("[vdso]", bytes) else {
            return;
        };
        let loads = [(load.svma, load.mem_size)];
        let build_id = image.build_id().cloned();
        let adding = Adding {
            path: "[vdso]".to_owned(),
            bias,
            ..Adding::default()
        };
        self.insert(session, sink, adding, Some(image), None, build_id, &loads);
    }

    /// Adds the memory that the stub has mapped for its own code. Returns the new module's id, or
    /// nothing if it is known.
    pub(super) fn add_stub_code(
        &mut self,
        session: &Session,
        sink: &mut Sink,
        (start, size): (u64, u64),
    ) -> Option<u32> {
        if self.at(start).is_some() {
            return None;
        }
        let adding = Adding {
            path: STUB_CODE.to_owned(),
            bias: start,
            ..Adding::default()
        };
        Some(self.insert(session, sink, adding, None, None, None, &[(0, size)]))
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "all facts about a module, of which the vDSO and the stub's code have only some"
    )]
    fn insert(
        &mut self,
        session: &Session,
        sink: &mut Sink,
        adding: Adding,
        image: Option<Image>,
        problem: Option<String>,
        build_id: Option<BuildId>,
        loads: &[(u64, u64)],
    ) -> u32 {
        let Adding {
            path,
            bias,
            executable,
            started_as,
            started_by_link,
            file_number,
            ..
        } = adding;
        let mask = if session.abi.pointer == 4 {
            0xffff_ffff
        } else {
            u64::MAX
        };
        let place = |svma: u64| svma.wrapping_add(bias) & mask;
        let start = loads
            .iter()
            .map(|(svma, _)| place(*svma))
            .min()
            .unwrap_or(0);
        let end = loads
            .iter()
            .map(|(svma, size)| place(*svma).saturating_add(*size))
            .max()
            .unwrap_or(0);
        self.last_id += 1;
        let id = self.last_id;
        let link = started_by_link.then(|| started_as.clone());
        sink.record(ModuleLoaded {
            id,
            path: path.clone(),
            bias,
            start,
            end,
            build_id: build_id
                .as_ref()
                .map(|id| id.as_bytes().to_vec())
                .unwrap_or_default(),
            time_ns: sink.now_ns(),
            executable,
            started_as,
            started_by_link,
            file_number,
        });
        let table = image.as_ref().map(|image| self.store.table(image));
        let mapped = Mapped {
            id,
            path,
            link,
            bias,
            image,
            build_id,
            problem,
            table,
            file: None,
            start,
            end,
        };
        self.map_in(&mapped);
        self.mapped.push(mapped);
        id
    }

    fn map_in(&mut self, mapped: &Mapped) {
        if let Some(table) = &mapped.table {
            self.map.add(Module {
                id: mapped.id,
                name: mapped.path.clone(),
                bias: mapped.bias,
                table: Arc::clone(table),
            });
        } else {
            self.map.add_unreadable(mapped.start..mapped.end);
        }
    }

    /// Records the memory without a file that contains addresses of stacks.
    pub(super) fn find_generated_code(
        &mut self,
        session: &mut Session,
        sink: &mut Sink,
        unknown: &mut UnknownCode,
    ) {
        let modules = &self.mapped;
        self.generated_code.find(session, sink, modules, unknown);
    }

    /// Replaces the modules with the dynamic linker's list, and keeps the modules in `kept` in any
    /// case. Returns the ids of the new modules, and the ranges that are no longer mapped.
    pub(super) fn update(
        &mut self,
        session: &mut Session,
        sink: &mut Sink,
        listed: &[Listed],
        kept: &[u32],
    ) -> (Vec<u32>, Vec<std::ops::Range<u64>>) {
        let (stay, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut self.mapped)
            .into_iter()
            .partition(|mapped| {
                kept.contains(&mapped.id)
                    || listed
                        .iter()
                        .any(|l| l.bias == mapped.bias && l.path == mapped.path)
            });
        self.mapped = stay;
        if !gone.is_empty() {
            self.map = empty_map(&session.abi);
            for mapped in self.mapped.clone() {
                self.map_in(&mapped);
            }
        }
        for mapped in &gone {
            sink.record(ModuleUnloaded {
                id: mapped.id,
                time_ns: sink.now_ns(),
            });
        }
        let new: Vec<u32> = listed
            .iter()
            .filter(|listed| !self.mapped.iter().any(|mapped| mapped.bias == listed.bias))
            .cloned()
            .collect::<Vec<_>>()
            .into_iter()
            .map(|Listed { path, bias }| {
                self.add(
                    session,
                    sink,
                    Adding {
                        path,
                        bias,
                        ..Adding::default()
                    },
                )
            })
            .collect();
        (
            new,
            gone.into_iter()
                .map(|mapped| mapped.start..mapped.end)
                .collect(),
        )
    }

    /// Forgets all modules, because the process has executed another program.
    pub(super) fn clear(&mut self, abi: &Abi, sink: &mut Sink) {
        for mapped in self.mapped.drain(..) {
            sink.record(ModuleUnloaded {
                id: mapped.id,
                time_ns: sink.now_ns(),
            });
        }
        self.map = empty_map(abi);
        self.generated_code = GeneratedCodeSearch::default();
    }

    /// Opens the file that the user named, if it belongs to the program.
    fn find_named(
        &self,
        session: &mut Session,
        named: &Path,
        path: &str,
        bias: u64,
        build_id: Option<&BuildId>,
    ) -> Result<Opened, String> {
        let wanted = Wanted {
            path: &named.to_string_lossy(),
            build_id,
            local: true,
        };
        let found = self.store.find(&wanted, None);
        let file = found.map_err(|error| error.to_string())?;
        // Two build-ids identify the file; without them, compare the code.
        let told = build_id.is_some() && file.image.build_id().is_some();
        match told || has_code_of(session, &file.image, bias) {
            true => Ok(file),
            false => Err(format!(
                "the code of {} differs from that of {path}",
                named.display()
            )),
        }
    }

    fn find(
        &self,
        session: &mut Session,
        path: &str,
        header: u64,
        build_id: Option<&BuildId>,
    ) -> Result<Opened, FindError> {
        let wanted = Wanted {
            path,
            build_id,
            local: session.local,
        };
        if !session.local {
            let mut fetch = |path: &str| replaced_file::fetch(session, path, header);
            return self.store.find(&wanted, Some(&mut fetch));
        }
        // Without a build-id, nothing else shows that the file at the path is another one.
        let found = build_id.map(|_| self.store.find(&wanted, None));
        if let Some(Ok(found)) = found {
            return Ok(found);
        }
        if let Some(file) = replaced_file::on_this_machine(session, path, header) {
            return self.store.open_mapped(&wanted, Path::new(&file));
        }
        found.unwrap_or_else(|| self.store.find(&wanted, None))
    }
}
