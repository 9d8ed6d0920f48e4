//! The modules of a real or generated process, for every contender.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use framehop::Unwinder;
use framehop::x86_64::UnwinderX86_64;
use unspool_image::{Arch, Image};
use unspool_unwind::{CompileOptions, Module, ModuleMap, Table};

use super::framehop_module::for_framehop;

/// The images of a process and their addresses.
pub(crate) struct Process {
    pub(crate) modules: ModuleMap,
    pub(crate) framehop: UnwinderX86_64<Vec<u8>>,
}

impl Process {
    /// A process with these files, each with its bias.
    pub(crate) fn new(arch: Arch, files: &[(u64, PathBuf)]) -> Process {
        let mut process = Process {
            modules: ModuleMap::new(arch),
            framehop: UnwinderX86_64::new(),
        };
        for (id, (bias, path)) in files.iter().enumerate() {
            let image = Image::open(path).unwrap_or_else(|error| {
                panic!(
                    "{error}: run: sudo apt-get install --no-install-recommends gcc libunwind-dev libssl3 \
                     libstdc++6 libpython3.11 libllvm14"
                )
            });
            process.add(id as u32, *bias, path, image);
        }
        process
    }

    pub(crate) fn add(&mut self, id: u32, bias: u64, path: &Path, image: Image) {
        if image.arch() == Arch::X86_64 {
            self.framehop.add_module(for_framehop(&image, bias));
        }
        let mut options = CompileOptions::default();
        // framehop and libunwind use this; on ARM it does not cover all code.
        options.code = image.arch() == Arch::Arm;
        let table = Table::compile(&image, &options);
        self.modules.add(Module {
            id,
            name: path.display().to_string(),
            bias,
            table: Arc::new(table),
        });
    }
}
