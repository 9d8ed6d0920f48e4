//! The modules of a process, real or made up, as every contender wants them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use framehop::x86_64::UnwinderX86_64;
use framehop::{ExplicitModuleSectionInfo, Unwinder};
use unspool_image::{Arch, Image};
use unspool_unwind::{CompileOptions, Module, ModuleMap, Table};

/// Images at addresses.
pub(crate) struct Process {
    pub(crate) modules: ModuleMap,
    pub(crate) framehop: UnwinderX86_64<Vec<u8>>,
}

impl Process {
    /// Of files, with what to add to their addresses.
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
        // What framehop and libunwind go by; ARM has nothing like it in all places.
        options.code = image.arch() == Arch::Arm;
        let table = Table::compile(&image, &options);
        self.modules.add(Module {
            id,
            name: path.display().to_string(),
            bias,
            image,
            table: Arc::new(table),
        });
    }
}

/// With all sections that framehop uses for ELF.
pub(crate) fn for_framehop(image: &Image, bias: u64) -> framehop::Module<Vec<u8>> {
    let range = |name: &str| {
        let section = image.section(name)?;
        Some(section.svma..section.svma + section.data.len() as u64)
    };
    let data = |name: &str| Some(image.section(name)?.data.into_owned());
    let end = image.segments().iter().map(|segment| segment.range().end);
    framehop::Module::new(
        image.name().to_owned(),
        bias..bias + end.max().unwrap_or(0),
        bias,
        ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: range(".text"),
            text: data(".text"),
            got_svma: range(".got"),
            eh_frame_svma: range(".eh_frame"),
            eh_frame: data(".eh_frame"),
            eh_frame_hdr_svma: range(".eh_frame_hdr"),
            eh_frame_hdr: data(".eh_frame_hdr"),
            ..Default::default()
        },
    )
}
