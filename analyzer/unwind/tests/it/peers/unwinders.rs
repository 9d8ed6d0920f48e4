//! Unwinds a snapshot with each unwinder.

use std::collections::HashMap;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use framehop::Unwinder;
use framehop::aarch64::{CacheAarch64, UnwindRegsAarch64, UnwinderAarch64};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use unspool_image::Arch;
use unspool_unwind::{
    CompileOptions, Module, ModuleMap, RegisterFile, Source, Stack, StackSlice, Table, WalkOptions,
    walk,
};

use super::libunwind::Libunwind;
use super::snapshot::{Mapped, Snapshot};
use crate::framehop_module::for_framehop;

/// A peer's result: the pcs, innermost first, and the reason for the end.
pub(crate) struct Found {
    pub(crate) pcs: Vec<u64>,
    pub(crate) end: String,
    /// Whether it tracks all registers that call frame information names. On x86-64, framehop
    /// tracks only rip, rsp and rbp.
    pub(crate) all_registers: bool,
}

enum Framehop {
    X86_64(UnwinderX86_64<Vec<u8>>, CacheX86_64),
    Aarch64(UnwinderAarch64<Vec<u8>>, CacheAarch64),
}

pub(crate) struct Unwinders {
    arch: Arch,
    tables: HashMap<PathBuf, Arc<Table>>,
    mapped: Arc<Vec<Mapped>>,
    modules: ModuleMap,
    framehop: Framehop,
    libunwind: Option<Libunwind>,
}

impl Unwinders {
    pub(crate) fn new(arch: Arch, libunwind: Option<&Path>) -> Unwinders {
        Unwinders {
            arch,
            tables: HashMap::new(),
            mapped: Arc::default(),
            modules: ModuleMap::new(arch),
            framehop: framehop(arch),
            libunwind: libunwind.map(Libunwind::new),
        }
    }

    pub(crate) fn modules(&self) -> &ModuleMap {
        &self.modules
    }

    fn add_modules(&mut self, mapped: &Arc<Vec<Mapped>>) {
        if Arc::ptr_eq(&self.mapped, mapped) {
            return;
        }
        self.mapped = mapped.clone();
        self.modules = ModuleMap::new(self.arch);
        self.framehop = framehop(self.arch);
        for (id, module) in mapped.iter().enumerate() {
            let Mapped { path, bias, image } = module.clone();
            match &mut self.framehop {
                Framehop::X86_64(unwinder, _) => unwinder.add_module(for_framehop(&image, bias)),
                Framehop::Aarch64(unwinder, _) => unwinder.add_module(for_framehop(&image, bias)),
            }
            let table = self
                .tables
                .entry(path.clone())
                .or_insert_with(|| Arc::new(Table::compile(&image, &CompileOptions::default())));
            let table = table.clone();
            self.modules.add(Module {
                id: id as u32,
                name: path.display().to_string(),
                bias,
                table,
            });
        }
    }

    /// Our stack, and the peers' results.
    pub(crate) fn unwind(&mut self, snapshot: &Snapshot) -> (Stack, Vec<(&'static str, Found)>) {
        self.add_modules(&snapshot.modules);
        let registers = RegisterFile::new(self.arch, |name| snapshot.registers.get(name).copied());
        let mut memory = StackSlice {
            avma: snapshot.base,
            bytes: &snapshot.stack,
        };
        let mut options = WalkOptions::default();
        options.max_frames = 4096;
        let ours = walk(&self.modules, &registers, &mut memory, &options);
        let mut peers = vec![("framehop", self.framehop(snapshot))];
        if let Some(libunwind) = &mut self.libunwind {
            let pcs = libunwind.unwind(snapshot);
            peers.push((
                "libunwind",
                Found {
                    pcs,
                    end: String::new(),
                    all_registers: true,
                },
            ));
        }
        (ours, peers)
    }

    fn framehop(&mut self, snapshot: &Snapshot) -> Found {
        let value = |name: &str| snapshot.registers[name];
        let mut read = |avma: u64| {
            let at = usize::try_from(avma.wrapping_sub(snapshot.base)).map_err(|_| ())?;
            let bytes = snapshot
                .stack
                .get(at..)
                .and_then(<[u8]>::first_chunk::<8>)
                .ok_or(())?;
            Ok(u64::from_le_bytes(*bytes))
        };
        let mut pcs = Vec::new();
        macro_rules! collect {
            ($frames:expr) => {{
                let mut frames = $frames;
                let end = loop {
                    match frames.next() {
                        Ok(Some(frame)) => pcs.push(frame.address()),
                        Ok(None) => break String::new(),
                        Err(error) => break error.to_string(),
                    }
                };
                Found {
                    pcs,
                    end,
                    all_registers: false,
                }
            }};
        }
        match &mut self.framehop {
            Framehop::X86_64(unwinder, cache) => {
                let registers = UnwindRegsX86_64::new(value("rip"), value("rsp"), value("rbp"));
                collect!(unwinder.iter_frames(value("rip"), registers, cache, &mut read))
            }
            Framehop::Aarch64(unwinder, cache) => {
                let registers = UnwindRegsAarch64::new(value("x30"), value("sp"), value("x29"));
                collect!(unwinder.iter_frames(value("pc"), registers, cache, &mut read))
            }
        }
    }

    /// The module and svma of an address, as text.
    pub(crate) fn place(&self, avma: u64) -> String {
        match self.modules.find(avma) {
            Some((module, svma)) => {
                let name = module.name.rsplit('/').next().unwrap_or_default();
                let image = module.table.image().expect("an image");
                let symbol = image
                    .symbols()
                    .containing(svma)
                    .map(|symbol| symbol.name.to_string());
                format!("{name}+{svma:#x} {}", symbol.unwrap_or_default())
            }
            None => format!("{avma:#x}"),
        }
    }

    /// Both results side by side, from the first difference on.
    pub(crate) fn describe(&self, ours: &Stack, peer: &Found) -> String {
        let mut text = String::new();
        for index in 0..ours.frames.len().max(peer.pcs.len()) {
            let (mine, other) = (ours.frames.get(index), peer.pcs.get(index));
            let mine = mine.map_or("-".into(), |frame| {
                format!(
                    "{} [{} sp {:#x}]",
                    self.place(frame.pc),
                    frame.provenance,
                    frame.sp
                )
            });
            let other = other.map_or("-".into(), |pc| self.place(*pc));
            text += &format!("    #{index} {mine}   |   {other}\n");
        }
        text + &format!("    end: {}   |   {}\n", ours.end, peer.end)
    }

    /// The evidence for finding out who is right: all registers, the rules of each source for the
    /// first frames that differ, and the stack words around them.
    pub(crate) fn evidence(&self, snapshot: &Snapshot, ours: &Stack, peer: &Found) -> String {
        let mut registers: Vec<_> = snapshot.registers.iter().collect();
        registers.sort();
        let mut text = String::from("    registers:");
        for (name, value) in registers {
            text += &format!(" {name} {value:#x}");
        }
        let same = ours.frames.iter().zip(&peer.pcs);
        let parted = same.take_while(|(mine, other)| mine.pc == **other).count();
        let first = parted.saturating_sub(2);
        for (index, frame) in ours.frames.iter().enumerate().skip(first).take(4) {
            let place = self.place(frame.address_for_lookup);
            text += &format!("\n    #{index} looked up at {place}");
            if let Some((module, svma)) = self.modules.find(frame.address_for_lookup) {
                for source in [Source::Cfi, Source::Code] {
                    let row = module.table.lookup_from(source, svma);
                    text += &format!("\n      {source}: {row:x?}");
                }
                let image = module.table.image().expect("an image");
                let code = image.bytes_at(svma.saturating_sub(16), 48);
                text += &format!("\n      code from 16 bytes before: {code:02x?}");
            }
            for slot in -4..28 {
                let at = frame.sp.wrapping_add_signed(8 * slot);
                let skip = at.wrapping_sub(snapshot.base) as usize;
                let word = snapshot
                    .stack
                    .get(skip..)
                    .and_then(<[u8]>::first_chunk::<8>);
                if let Some(word) = word.map(|word| u64::from_le_bytes(*word)) {
                    text += &format!("\n      {at:#x}: {word:#x} {}", self.place_in_module(word));
                }
            }
        }
        text + "\n"
    }

    fn place_in_module(&self, word: u64) -> String {
        let known = self.modules.find(word).is_some();
        if known {
            self.place(word)
        } else {
            String::new()
        }
    }
}

fn framehop(arch: Arch) -> Framehop {
    match arch {
        Arch::Aarch64 => Framehop::Aarch64(UnwinderAarch64::new(), CacheAarch64::new()),
        _ => Framehop::X86_64(UnwinderX86_64::new(), CacheX86_64::new()),
    }
}
