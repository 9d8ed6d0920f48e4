//! From a program that stands still to one whose creation functions are watched: at its first
//! instruction, when its libraries are known, after each `dlopen`, after an exec, or in full run.
//!
//! A dynamic program is held at the dynamic linker's notifications (`_dl_debug_state`), which
//! come before any constructor runs, so that threads made by constructors are seen as well.

use unspool_capture::{ProbeKind, Severity};
use unspool_rsp::{StopReply, ThreadId};

use super::auxv::Auxv;
use super::memory::{self, PT_INTERP, PT_LOAD, PT_PHDR, ProgramHeader};
use super::modules::{Adding, Mapped};
use super::movable;
use super::probes::{FUNCTIONS, Place, Purpose};
use super::recorder::Recorder;
use super::rendezvous::{self, Listed, Rendezvous};
use super::{Error, launch};
use crate::c_library::has_threads;

/// The C library's functions by which another program takes the place of this one. All others come through them.
const LEAVING: [&str; 3] = ["execve", "execveat", "fexecve"];

/// Of a file, where its headers are and most often its build-id.
const BEGINNING: usize = 4096;

/// What belongs to the program that the process runs now; an exec makes a new one.
#[derive(Debug, Clone, Default)]
pub(super) struct Program {
    pub(super) auxv: Auxv,
    /// Path of the executable on the target.
    pub(super) path: String,
    /// The path it was started by, where that is known.
    started_as: String,
    /// That is a link to it.
    started_by_link: bool,
    executable: u32,
    /// Modules that no list of the dynamic linker has, or not from the beginning.
    kept: Vec<u32>,
    /// Where `r_debug` is, once that is known.
    rendezvous: Option<u64>,
}

impl Program {
    /// There is a dynamic linker.
    pub(super) fn is_dynamic(&self) -> bool {
        self.auxv.interpreter != 0 || self.rendezvous.is_some()
    }
}

impl Recorder {
    /// Finds out what the process runs.
    pub(super) fn identify(&mut self) -> Result<Program, Error> {
        let client = &mut self.session.client;
        let auxv = Auxv::read(client);
        let named = client.exec_file(self.session.pid).ok().flatten();
        let started_as = Some(auxv.file_name).filter(|at| *at != 0);
        let started_as = started_as.and_then(|at| memory::string(client, at));
        let started_as = started_as.filter(|path| !path.is_empty());
        let given = self
            .exec
            .as_ref()
            .map(|exec| exec.to_string_lossy().into_owned());
        let path = named
            .or_else(|| started_as.clone())
            .or(given)
            .ok_or(Error::UnknownProgram)?;
        let started_as = started_as.unwrap_or_default();
        let file_name = |path: &str| path.rsplit('/').next().map(str::to_owned);
        let started_by_link =
            file_name(&started_as) != file_name(&path) && self.is_executable(&started_as);
        Ok(Program {
            auxv,
            path,
            started_as,
            started_by_link,
            ..Program::default()
        })
    }

    /// Whether the path by which the program was started leads to its executable, not to a script for that: both files begin alike,
    /// with ELF headers and most often the build-id.
    fn is_executable(&mut self, started_as: &str) -> bool {
        let Some(pid) = self.session.pid else {
            return false;
        };
        // Links in /dev/fd are to what this process has open.
        let path = match started_as {
            "" => return false,
            path if path.starts_with("/dev/fd/") => return false,
            path if path.starts_with('/') => path.to_owned(),
            path => format!("/proc/{pid}/cwd/{path}"),
        };
        let mut beginning = |path: &str| {
            let mut file = self.session.client.open_file(path).ok()?;
            file.read_at(0, BEGINNING).ok()
        };
        let started = beginning(&path);
        let is_elf = |bytes: &Vec<u8>| bytes.starts_with(b"\x7fELF");
        started.as_ref().is_some_and(is_elf) && started == beginning(&format!("/proc/{pid}/exe"))
    }

    /// Whether a program that was there before us has yet to execute its first instruction.
    pub(super) fn has_not_begun(
        &mut self,
        program: &Program,
        stop: &StopReply,
    ) -> Result<bool, Error> {
        let StopReply::Stopped {
            thread: Some(thread),
            ..
        } = stop
        else {
            return Ok(false);
        };
        if program.auxv.interpreter != 0 {
            let (client, abi) = (&mut self.session.client, &self.session.abi);
            return Ok(rendezvous::address(client, abi, &program.auxv).is_none());
        }
        let pc = self.pc_of(*thread, stop)?;
        Ok(pc == Some(self.session.abi.code_address(program.auxv.entry)))
    }

    /// Adds the modules that are there from the start and plants what can be planted now.
    pub(super) fn begin_program(&mut self, program: Program) -> Result<(), Error> {
        self.add_first_modules(program);
        self.plant_linker()?;
        if self.program.is_dynamic() {
            return self.update_modules();
        }
        let executable = self.program.executable;
        self.plant_in(&[executable])?;
        self.check_static(executable)
    }

    /// Says so if the program runs without a privilege that its file gives it elsewhere.
    pub(super) fn note_lost_privilege(&mut self, path: &str) {
        if !self.session.own_stub {
            return;
        }
        if let Some(privilege) = launch::lost_privilege(path.as_ref()) {
            self.sink.note(
                Severity::Warning,
                format!(
                    "the kernel ignored the {privilege} of {path} because of the recording, so the \
                     program runs without that privilege; record it as root"
                ),
            );
        }
    }

    /// Lists the modules of a program that is only looked at.
    pub(super) fn list_modules(&mut self, program: Program) {
        self.add_first_modules(program);
        if let Some(listed) = self.listed_libraries() {
            self.modules.update(
                &mut self.session,
                &mut self.sink,
                &listed,
                &self.program.kept,
            );
        }
    }

    /// The executable, the dynamic linker and the vDSO, which are mapped from the first instruction on.
    fn add_first_modules(&mut self, program: Program) {
        self.program = program;
        let auxv = self.program.auxv;
        let headers = memory::program_headers(
            &mut self.session.client,
            &self.session.abi,
            auxv.headers,
            auxv.header_count,
        )
        .unwrap_or_default();
        let bias = bias_of_program(&auxv, &headers);
        let adding = Adding {
            path: self.program.path.clone(),
            bias,
            header: Some(auxv.headers & !0xfff),
            executable: true,
            started_as: self.program.started_as.clone(),
            started_by_link: self.program.started_by_link,
            file: self.exec.clone(),
        };
        let executable = self.modules.add(&mut self.session, &mut self.sink, adding);
        self.program.executable = executable;
        self.program.kept.push(executable);

        if auxv.interpreter != 0 {
            let interpreter = headers
                .iter()
                .find(|header| header.kind == PT_INTERP)
                .and_then(|header| {
                    memory::string(&mut self.session.client, bias.wrapping_add(header.svma))
                })
                .unwrap_or_else(|| "ld.so".to_owned());
            let adding = Adding {
                path: interpreter,
                bias: auxv.interpreter,
                ..Adding::default()
            };
            let linker = self.modules.add(&mut self.session, &mut self.sink, adding);
            self.program.kept.push(linker);
        }
        if auxv.vdso != 0 {
            self.modules
                .add_vdso(&mut self.session, &mut self.sink, auxv.vdso);
            self.program.kept.extend(
                self.modules
                    .iter()
                    .filter(|m| m.path == "[vdso]")
                    .map(|m| m.id),
            );
        }
    }

    /// The dynamic linker has changed its list, or may have: follows it, if the change is complete.
    pub(super) fn update_modules(&mut self) -> Result<(), Error> {
        let Some(listed) = self.listed_libraries() else {
            return Ok(());
        };
        let first = !self.libraries_known;
        let (new, gone) = self.modules.update(
            &mut self.session,
            &mut self.sink,
            &listed,
            &self.program.kept,
        );
        if !gone.is_empty() {
            self.calls.forget_paths();
        }
        for range in &gone {
            self.calls.unmapped(range);
            self.probes.unmapped(&mut self.session.client, range);
        }
        let all: Vec<u32> = self.modules.iter().map(|mapped| mapped.id).collect();
        self.plant_in(if first { &all } else { &new })?;
        if first && !listed.is_empty() {
            self.libraries_known = true;
            self.check_dynamic()?;
        }
        Ok(())
    }

    /// What the dynamic linker lists, the program itself left out; `None` while it changes the list.
    fn listed_libraries(&mut self) -> Option<Vec<Listed>> {
        let (client, abi) = (&mut self.session.client, &self.session.abi);
        if self.program.rendezvous.is_none() {
            self.program.rendezvous = rendezvous::address(client, abi, &self.program.auxv);
        }
        let state = self
            .program
            .rendezvous
            .and_then(|at| Rendezvous::read(client, abi, at));
        let state = state.filter(|state| state.consistent)?;
        let offered = client.features().has("qXfer:libraries-svr4:read");
        let listed: Vec<Listed> = match offered.then(|| client.libraries()) {
            Some(Ok(libraries)) if !libraries.is_empty() => libraries
                .into_iter()
                .filter(|library| !library.path.is_empty())
                .map(|library| Listed {
                    path: library.path,
                    bias: library.l_addr,
                })
                .collect(),
            _ => state.libraries(client, abi),
        };
        // The program itself may be listed too, under whatever name.
        let executable = self
            .modules
            .get(self.program.executable)
            .map(|executable| executable.bias);
        Some(
            listed
                .into_iter()
                .filter(|listed| Some(listed.bias) != executable)
                .collect(),
        )
    }

    /// Plants at the dynamic linker's notification function, wherever it is named.
    fn plant_linker(&mut self) -> Result<(), Error> {
        // The executable comes last: only a static one has the function, and to read the names of a large one takes longer
        // than the rest of the start.
        let named = self
            .program
            .kept
            .iter()
            .rev()
            .filter_map(|id| self.modules.get(*id))
            .find_map(|mapped| places(mapped, "_dl_debug_state").into_iter().next());
        // Without a symbol, r_debug names the function, if the linker has come that far.
        let (client, abi) = (&mut self.session.client, &self.session.abi);
        let place = named.or_else(|| {
            let at = rendezvous::address(client, abi, &self.program.auxv)?;
            let notifier = Rendezvous::read(client, abi, at)?.notifier;
            Some(Place {
                address: abi.code_address(notifier),
                movable: 0,
                thumb: abi.code_address(notifier) != notifier,
                function: String::new(),
                module: None,
            })
        });
        match place {
            Some(place) => {
                self.probes.plant_own(client, abi, Purpose::Linker, &place);
                self.probes.send_all(client, &mut self.sink)
            }
            None if self.program.auxv.interpreter != 0 => {
                let problem = self
                    .modules
                    .iter()
                    .find_map(|mapped| mapped.problem.as_deref());
                Err(Error::NoCreation(format!(
                    "the dynamic linker's file is needed, {}",
                    problem.map_or(
                        "and has no symbol _dl_debug_state; install its debug file".to_owned(),
                        |problem| format!("but {problem}")
                    )
                )))
            }
            None => Ok(()),
        }
    }

    /// Plants probes in those of `ids` that define what is watched.
    fn plant_in(&mut self, ids: &[u32]) -> Result<(), Error> {
        let mut naming: Vec<Place> = Vec::new();
        let mut leaving: Vec<Place> = Vec::new();
        let mut wanted: Vec<(ProbeKind, Place)> = Vec::new();
        for mapped in ids.iter().filter_map(|id| self.modules.get(*id)) {
            let (names_before, before) = (naming.len(), wanted.len());
            // Names are not asked for when a thread starts, for it gives itself one later; and a thread
            // that lives a moment is gone before names are read again.
            if !self.threads_run_on && has_threads(&mapped.path) {
                naming.extend(places(mapped, "pthread_setname_np"));
            }
            // A program or library may define its own pthread_create around the C library's; the
            // inner one is where threads are made, and the outer one is in its backtrace.
            if !self.program.is_dynamic() || has_threads(&mapped.path) {
                for (kind, names) in FUNCTIONS {
                    if self.threads_run_on && kind != ProbeKind::Create {
                        continue;
                    }
                    let here = names.iter().flat_map(|name| places(mapped, name));
                    wanted.extend(here.map(|place| (kind, place)));
                }
            }
            if self.probes.fast {
                if !self.program.is_dynamic() || has_threads(&mapped.path) {
                    let here = LEAVING.iter().flat_map(|name| places(mapped, name));
                    leaving.extend(here);
                }
                let names = naming[names_before..].iter_mut();
                let others = wanted[before..].iter_mut().map(|(_, place)| place);
                movable::tell(
                    self.modules.store(),
                    mapped,
                    &mut names.chain(others).collect::<Vec<_>>(),
                );
            }
        }
        let naming = naming.into_iter().map(|place| (Purpose::Name, place));
        let leaving = leaving.into_iter().map(|place| (Purpose::Exec, place));
        let (client, abi) = (&mut self.session.client, &self.session.abi);
        for (purpose, place) in naming.chain(leaving) {
            self.probes.plant_own(client, abi, purpose, &place);
        }
        for (kind, place) in wanted {
            self.probes.plant(client, abi, kind, &place);
        }
        self.probes.send_all(client, &mut self.sink)?;
        self.plant_calls(ids)?;
        self.ask_for_places()
    }

    /// Where the server notes hits without a stop, and where it does not.
    pub(super) fn ask_for_places(&mut self) -> Result<(), Error> {
        if self.probes.fast
            && let Some(places) = self.session.client.trace_places()?
        {
            self.note_how(places);
        }
        Ok(())
    }

    /// Threads of a static program cannot be seen without its symbols.
    fn check_static(&mut self, executable: u32) -> Result<(), Error> {
        if self.probes.has(ProbeKind::Create) {
            return Ok(());
        }
        let Some(mapped) = self.modules.get(executable) else {
            return Ok(());
        };
        let Some(image) = &mapped.image else {
            let problem = mapped.problem.clone().unwrap_or_default();
            return Err(Error::File(format!(
                "{problem}; name the program's file with --exec"
            )));
        };
        if image.symbols().functions().next().is_none() {
            let id = mapped.build_id.as_ref().map(ToString::to_string);
            let id = id
                .filter(|id| id.len() > 2)
                .map_or("XX/REST.debug".to_owned(), |id| {
                    format!("{}/{}.debug", &id[..2], &id[2..])
                });
            return Err(Error::NoSymbols {
                path: mapped.path.clone(),
                id,
            });
        }
        self.sink.note(
            Severity::Warning,
            "the program is static and has no pthread_create; if it makes threads in another way, they are not seen",
        );
        Ok(())
    }

    /// A dynamic program must have a C library whose creation function can be watched.
    fn check_dynamic(&mut self) -> Result<(), Error> {
        if self.probes.has(ProbeKind::Create) {
            return Ok(());
        }
        if let Some(library) = self.modules.iter().find(|mapped| has_threads(&mapped.path))
            && let Some(problem) = &library.problem
        {
            return Err(Error::NoCreation(format!(
                "the C library's file is needed, but {problem}"
            )));
        }
        // An unusual C library: whoever defines the function is believed.
        let own: Vec<(ProbeKind, Place)> = self
            .modules
            .iter()
            .flat_map(|mapped| {
                FUNCTIONS.into_iter().flat_map(move |(kind, names)| {
                    names
                        .iter()
                        .flat_map(move |name| places(mapped, name))
                        .map(move |place| (kind, place))
                })
            })
            .collect();
        let leaving: Vec<Place> = (self.modules.iter().filter(|_| self.probes.fast))
            .flat_map(|mapped| LEAVING.iter().flat_map(move |name| places(mapped, name)))
            .collect();
        let (client, abi) = (&mut self.session.client, &self.session.abi);
        for place in leaving {
            self.probes.plant_own(client, abi, Purpose::Exec, &place);
        }
        for (kind, place) in own {
            self.probes.plant(client, abi, kind, &place);
        }
        self.probes.send_all(client, &mut self.sink)?;
        if !self.probes.has(ProbeKind::Create) {
            self.sink.note(
                Severity::Info,
                "no library of the program defines pthread_create; libraries loaded later are watched for it",
            );
        }
        Ok(())
    }

    /// The process runs another program now: everything planted and mapped is gone with the old.
    pub(super) fn on_exec(&mut self, thread: ThreadId, path: &str) -> Result<(), Error> {
        self.sink.note(
            Severity::Info,
            format!("the process became another program: {path}"),
        );
        self.threads.clear(&mut self.sink, Some(thread.tid));
        self.pending.clear();
        self.probes.clear();
        self.calls.forget_resolvers();
        self.modules.clear(&self.session.abi, &mut self.sink);
        self.libraries_known = false;
        self.exec = None;
        self.note_lost_privilege(path);
        let program = self.identify()?;
        self.begin_trace()?;
        match self.begin_program(program) {
            // The recording has begun long ago; the program it is about now cannot be watched.
            Err(error) if !matches!(&error, Error::Rsp(error) if error.is_fatal()) => {
                self.sink.note(
                    Severity::Error,
                    format!("its threads are not recorded: {error}"),
                );
                Ok(())
            }
            other => other,
        }
    }
}

/// Where the program is, relative to what its file says.
fn bias_of_program(auxv: &Auxv, headers: &[ProgramHeader]) -> u64 {
    if let Some(own) = headers.iter().find(|header| header.kind == PT_PHDR) {
        return auxv.headers.wrapping_sub(own.svma);
    }
    // A static PIE may lack PT_PHDR; its headers lie in the first page of the first segment.
    let first = headers
        .iter()
        .filter(|header| header.kind == PT_LOAD)
        .min_by_key(|header| header.offset);
    first.map_or(0, |first| {
        (auxv.headers & !0xfff).wrapping_sub(first.svma & !0xfff)
    })
}

/// All functions of that name in a module.
pub(super) fn places(mapped: &Mapped, name: &str) -> Vec<Place> {
    let Some(image) = &mapped.image else {
        return Vec::new();
    };
    let symbols = image.symbols().named(name);
    symbols
        .into_iter()
        .filter(|symbol| symbol.kind == unspool_image::SymbolKind::Function)
        .map(|symbol| Place {
            address: symbol.svma.wrapping_add(mapped.bias),
            movable: 0,
            thumb: symbol.thumb,
            function: symbol.name.to_owned(),
            module: Some(mapped.id),
        })
        .collect()
}
