//! The files that other processes have mapped as code, from the kernel's records. They show in
//! which system calls these processes are blocked.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::sync::Arc;

use unspool_capture::ModuleLoaded;
use unspool_image::{BuildId, Image, Wanted};
use unspool_rsp::{CodeMapping, ScheduleEvent};
use unspool_unwind::Table;

use super::modules::Modules;
use crate::store::Store;

/// Maximum number of different files. Code of further ones shows no calls.
const MAX_FILES: usize = 1 << 11;
/// Maximum number of mappings of a process.
const MAX_MAPPINGS: usize = 1 << 12;

/// The processes that the program and its descendants have started.
#[derive(Default)]
pub(super) struct OtherProcesses {
    /// The ids of the program's own threads.
    own: HashSet<u64>,
    /// The program's own code, since something needed it.
    program: Option<Rc<Code>>,
    /// By thread id.
    threads: HashMap<u64, u64>,
    /// By process id.
    processes: HashMap<u64, Process>,
    files: Vec<CodeFile>,
    /// By path, inode number and build-id, positions in `files`.
    by_path: HashMap<(String, u64, Vec<u8>), usize>,
}

struct Process {
    threads: usize,
    code: Rc<Code>,
}

/// The code of a process. One that executes nothing shares that of its creator.
#[derive(Clone)]
pub(super) struct Code {
    /// The program has started it, and it has executed nothing: it has the program's modules, too.
    has_program: bool,
    mappings: Vec<Mapping>,
}

#[derive(Clone, Copy)]
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    file: usize,
}

struct CodeFile {
    path: String,
    /// 0 if the build-id is known instead.
    inode: u64,
    build_id: Option<BuildId>,
    /// The outer `None`: not opened yet.
    opened: OnceCell<Option<Opened>>,
}

/// A file and its unwind rules.
type Opened = (Image, Arc<Table>);

/// A place in the code of a process.
pub(super) enum Located {
    /// In a file, by its position and an offset in it.
    File(usize, u64),
    /// In a module of the program, if in any.
    Program,
}

impl OtherProcesses {
    /// Follows the program's own threads. They stay known after their end, because the records of
    /// the processes that they have created come later.
    pub(super) fn on_own_event(&mut self, tid: u64, event: &ScheduleEvent) {
        if let ScheduleEvent::Found { .. } | ScheduleEvent::Created { .. } = event {
            self.own.insert(tid);
        }
    }

    /// Follows an event of a thread of another process.
    pub(super) fn on_event(&mut self, tid: u64, event: &ScheduleEvent) {
        match event {
            ScheduleEvent::ProcessCreated { creator } => {
                let other = self.threads.get(creator).copied();
                let other = other.and_then(|pid| self.processes.get(&pid));
                let code = match other {
                    Some(other) => Rc::clone(&other.code),
                    None => Code::empty(self.own.contains(creator)),
                };
                self.end(tid);
                self.threads.insert(tid, tid);
                let process = Process { threads: 1, code };
                self.processes.insert(tid, process);
            }
            ScheduleEvent::Created { creator } => {
                if let Some(&pid) = self.threads.get(creator)
                    && let Some(process) = self.processes.get_mut(&pid)
                {
                    process.threads += 1;
                    self.threads.insert(tid, pid);
                }
            }
            ScheduleEvent::Executed(_) => self.execute(tid),
            ScheduleEvent::Mapped(mapping) => self.map(tid, mapping),
            ScheduleEvent::Ended => self.end(tid),
            _ => {}
        }
    }

    /// The program has executed another one, so that the processes that it has started no longer
    /// have its modules.
    pub(super) fn program_executed(&mut self) {
        self.program = None;
        for process in self.processes.values_mut() {
            if process.code.has_program {
                Rc::make_mut(&mut process.code).has_program = false;
            }
        }
    }

    /// The program's own code.
    pub(super) fn program_code(&mut self) -> Rc<Code> {
        let code = self.program.get_or_insert_with(|| Code::empty(true));
        Rc::clone(code)
    }

    /// True if a process has threads.
    pub(super) fn is_alive(&self, pid: u64) -> bool {
        self.processes.contains_key(&pid)
    }

    /// The process of a thread.
    pub(super) fn process_of(&self, tid: u64) -> Option<u64> {
        self.threads.get(&tid).copied()
    }

    /// Where an address of a process is. `None` if it is in no known file.
    pub(super) fn locate(&self, pid: u64, address: u64) -> Option<Located> {
        let code = &self.processes.get(&pid)?.code;
        // The last one has replaced those before it.
        let mut mappings = code.mappings.iter().rev();
        match mappings.find(|mapping| (mapping.start..mapping.end).contains(&address)) {
            Some(mapping) => {
                let offset = mapping.offset.checked_add(address - mapping.start)?;
                Some(Located::File(mapping.file, offset))
            }
            None => code.has_program.then_some(Located::Program),
        }
    }

    /// A file, and the address in it (svma) at an offset. On this machine, it is the file that was
    /// mapped, and on another one it is a module of the program.
    pub(super) fn file<'f>(
        &'f self,
        (file, offset): (usize, u64),
        modules: &'f Modules,
        local: bool,
    ) -> Option<(&'f Image, &'f Table, u64)> {
        let (image, table) = self.opened(self.files.get(file)?, modules, local)?;
        Some((image, table, image.svma_of_offset(offset)?))
    }

    fn opened<'f>(
        &self,
        file: &'f CodeFile,
        modules: &'f Modules,
        local: bool,
    ) -> Option<(&'f Image, &'f Arc<Table>)> {
        match local {
            true => {
                let opened = file.opened.get_or_init(|| file.open(modules.store()));
                opened.as_ref().map(|(image, table)| (image, table))
            }
            false => {
                let mut modules = modules.iter();
                let is_same = |id: &BuildId| file.build_id.as_ref().is_none_or(|own| own == id);
                let module = modules.find(|module| {
                    module.path == file.path && module.build_id.as_ref().is_none_or(is_same)
                })?;
                (module.image.as_ref()).zip(module.table())
            }
        }
    }

    /// The code of a process.
    pub(super) fn code(&self, pid: u64) -> Option<Rc<Code>> {
        Some(Rc::clone(&self.processes.get(&pid)?.code))
    }

    /// The modules of a process with this code, and their files with unwind rules.
    pub(super) fn modules(
        &self,
        code: &Code,
        modules: &Modules,
        local: bool,
    ) -> Vec<(ModuleLoaded, Option<Opened>)> {
        let mut found = Vec::new();
        for &Mapping {
            start,
            end,
            offset,
            file,
        } in &code.mappings
        {
            let file = &self.files[file];
            let opened = self.opened(file, modules, local);
            let image = opened.map(|(image, _)| image);
            let build_id = file.build_id.as_ref().or(image.and_then(Image::build_id));
            let path = match image {
                Some(image) => file.link(image).filter(|_| local),
                // Another file may have the path now, and only a build-id would tell it apart.
                None if local && build_id.is_none() => Some(format!("{} (not found)", file.path)),
                None => None,
            };
            let svma = image.and_then(|image| image.svma_of_code(offset, end - start));
            let bias = start.wrapping_sub(svma.unwrap_or(offset));
            // Variables are outside the code.
            let whole = image.and_then(|image| {
                let ranges = image.segments().iter().map(|segment| segment.range());
                let whole =
                    ranges.reduce(|all, one| all.start.min(one.start)..all.end.max(one.end));
                svma.and(whole)
            });
            let module = ModuleLoaded {
                path: path.unwrap_or_else(|| file.path.clone()),
                bias,
                start: whole
                    .as_ref()
                    .map_or(start, |whole| bias.wrapping_add(whole.start)),
                end: whole
                    .as_ref()
                    .map_or(end, |whole| bias.wrapping_add(whole.end)),
                build_id: build_id.map_or_else(Vec::new, |id| id.as_bytes().to_vec()),
                ..ModuleLoaded::default()
            };
            let opened = opened.map(|(image, table)| (image.clone(), table.clone()));
            found.push((module, opened));
        }
        if code.has_program {
            let shared = modules.iter();
            found.extend(shared.map(|mapped| {
                let opened = mapped.image.clone().zip(mapped.table().cloned());
                (mapped.elsewhere(), opened)
            }));
        }
        found
    }

    fn map(&mut self, tid: u64, mapping: &CodeMapping) {
        let pid = self.threads.get(&tid).copied();
        let Some(process) = pid.and_then(|pid| self.processes.get_mut(&pid)) else {
            return;
        };
        let build_id = mapping.build_id.clone();
        let key = (mapping.path.clone(), mapping.inode, build_id);
        let file = match self.by_path.get(&key) {
            Some(file) => *file,
            None if self.files.len() >= MAX_FILES => return,
            None => {
                self.files.push(CodeFile {
                    path: mapping.path.clone(),
                    inode: mapping.inode,
                    build_id: BuildId::new(&mapping.build_id),
                    opened: OnceCell::new(),
                });
                *self.by_path.entry(key).or_insert(self.files.len() - 1)
            }
        };
        let end = mapping.address.saturating_add(mapping.length);
        let code = Rc::make_mut(&mut process.code);
        let (start, mappings) = (mapping.address, &mut code.mappings);
        mappings.retain(|old| old.start < start || old.end > end);
        if mappings.len() < MAX_MAPPINGS {
            mappings.push(Mapping {
                start,
                end,
                offset: mapping.offset,
                file,
            });
        }
    }

    /// Only one thread remains. It takes the id of the first one, which may have ended.
    fn execute(&mut self, tid: u64) {
        let owner = self.threads.get(&tid).copied();
        let first = || Some(tid).filter(|tid| self.processes.contains_key(tid));
        let Some(pid) = owner.or_else(first) else {
            return;
        };
        self.threads.retain(|_, owner| *owner != pid);
        self.threads.insert(tid, pid);
        let (threads, code) = (1, Code::empty(false));
        self.processes.insert(pid, Process { threads, code });
    }

    fn end(&mut self, tid: u64) {
        if let Some(pid) = self.threads.remove(&tid)
            && let Some(process) = self.processes.get_mut(&pid)
        {
            process.threads -= 1;
            if process.threads == 0 {
                self.processes.remove(&pid);
            }
        }
    }
}

impl Code {
    fn empty(has_program: bool) -> Rc<Code> {
        Rc::new(Code {
            has_program,
            mappings: Vec::new(),
        })
    }
}

impl CodeFile {
    /// The link by which the dynamic loader opens a library, as far as this machine has it. The
    /// program's modules have such names, too.
    fn link(&self, image: &Image) -> Option<String> {
        let name = image.dynamic().soname.as_deref()?;
        let (directory, own) = self.path.rsplit_once('/')?;
        let path = format!("{directory}/{name}");
        let file = |path: &str| {
            let file = fs::metadata(path).ok()?;
            Some((file.dev(), file.ino()))
        };
        let is_same = || file(&path).is_some_and(|link| file(&self.path) == Some(link));
        (own != name && is_same()).then_some(path)
    }

    /// `None` if another file has this path now, or here. Devices are not compared, because
    /// overlayfs and btrfs give files other ones than their mappings.
    fn open(&self, store: &Store) -> Option<Opened> {
        if self.build_id.is_none() {
            (fs::metadata(&self.path).ok()?.ino() == self.inode).then_some(())?;
            // Closes the file that had the path before.
            store.file_number(&self.path, &self.path);
        }
        let wanted = Wanted {
            path: &self.path,
            build_id: self.build_id.as_ref(),
            local: true,
        };
        let image = store.find(&wanted, None).ok()?.image;
        let table = store.table(&image);
        Some((image, table))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread of the program.
    const OWN: u64 = 3;

    fn others() -> OtherProcesses {
        let mut others = OtherProcesses::default();
        others.on_own_event(OWN, &ScheduleEvent::Found { state: b'S' });
        others
    }

    fn mapped(address: u64, length: u64, path: &str) -> ScheduleEvent {
        ScheduleEvent::Mapped(Box::new(CodeMapping {
            address,
            length,
            offset: 0x1000,
            inode: 7,
            build_id: Vec::new(),
            path: path.to_owned(),
        }))
    }

    /// The file and the offset at an address of a process; `program` for its modules.
    fn at(others: &OtherProcesses, pid: u64, address: u64) -> Option<String> {
        Some(match others.locate(pid, address)? {
            Located::File(file, offset) => format!("{}+{offset:x}", others.files[file].path),
            Located::Program => "program".to_owned(),
        })
    }

    #[test]
    fn code_of_processes() {
        let mut others = others();
        let created = |creator| ScheduleEvent::ProcessCreated { creator };
        others.on_event(10, &created(OWN));
        assert_eq!(at(&others, 10, 0x500), Some("program".into()));
        others.on_event(10, &ScheduleEvent::Executed("sh".into()));
        assert_eq!(at(&others, 10, 0x500), None);
        others.on_event(10, &mapped(0x400, 0x200, "/bin/sh"));
        others.on_event(10, &mapped(0x800, 0x100, "/lib/c"));
        assert_eq!(at(&others, 10, 0x510), Some("/bin/sh+1110".into()));
        // A fork, and a thread of it, which maps a file over the end of the first one.
        others.on_event(11, &created(10));
        others.on_event(12, &ScheduleEvent::Created { creator: 11 });
        assert_eq!(others.process_of(12), Some(11));
        others.on_event(12, &mapped(0x500, 0x300, "/lib/d"));
        assert_eq!(at(&others, 11, 0x4ff), Some("/bin/sh+10ff".into()));
        assert_eq!(at(&others, 11, 0x500), Some("/lib/d+1000".into()));
        assert_eq!(at(&others, 11, 0x8ff), Some("/lib/c+10ff".into()));
        assert_eq!(at(&others, 10, 0x500), Some("/bin/sh+1100".into()));
        // The process lives as long as its last thread.
        others.on_event(11, &ScheduleEvent::Ended);
        assert_eq!(at(&others, 11, 0x500), Some("/lib/d+1000".into()));
        others.on_event(12, &ScheduleEvent::Ended);
        assert_eq!(at(&others, 11, 0x500), None);
        assert_eq!(others.files.len(), 3);
    }

    /// The server sends the records of the program's threads before those of other processes.
    #[test]
    fn creator_that_has_ended() {
        let mut others = others();
        others.on_own_event(OWN, &ScheduleEvent::Ended);
        others.on_event(10, &ScheduleEvent::ProcessCreated { creator: OWN });
        assert_eq!(at(&others, 10, 0x500), Some("program".into()));
    }

    #[test]
    fn modules_of_a_program_that_was_replaced() {
        let mut others = others();
        others.on_event(10, &ScheduleEvent::ProcessCreated { creator: OWN });
        others.program_executed();
        assert_eq!(at(&others, 10, 0x500), None);
    }

    #[test]
    fn another_thread_executes_a_program() {
        let mut others = others();
        others.on_event(10, &ScheduleEvent::ProcessCreated { creator: OWN });
        others.on_event(11, &ScheduleEvent::Created { creator: 10 });
        others.on_event(10, &ScheduleEvent::Ended);
        others.on_event(10, &ScheduleEvent::Executed("sh".into()));
        assert_eq!(
            (others.process_of(10), others.process_of(11)),
            (Some(10), None)
        );
        others.on_event(10, &mapped(0x400, 0x200, "/bin/sh"));
        assert_eq!(at(&others, 10, 0x400), Some("/bin/sh+1000".into()));
        others.on_event(10, &ScheduleEvent::Ended);
        assert!(others.processes.is_empty() && others.threads.is_empty());
    }

    #[test]
    fn creators_that_are_not_known() {
        let mut others = others();
        others.on_event(10, &ScheduleEvent::ProcessCreated { creator: 99 });
        assert_eq!(at(&others, 10, 0x500), None);
    }
}
