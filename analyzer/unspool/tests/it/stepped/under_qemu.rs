//! A program under qemu-arm, and the files in its memory.

use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use unspool_image::{Arch, Image};
use unspool_rsp::{Client, ClientOptions};
use unspool_unwind::{CompileOptions, Module, ModuleMap, Table};

/// Address of the guest's address 0 in qemu's memory. It tells the guest's mappings from qemu's
/// own.
const BASE: u64 = 0x10_0000_0000;

pub(super) struct Server {
    child: Child,
    pub(super) socket: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the program, halted before its first instruction. The environment is empty, so that each
/// run executes the same instructions. A dynamic program finds its libraries in `sysroot`.
pub(super) fn start(program: &Path, sysroot: Option<&Path>) -> Server {
    static STARTED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let number = STARTED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let socket = program.with_extension(format!("socket{number}"));
    let mut command = Command::new("qemu-arm");
    command
        .args(["-B", &format!("{BASE:#x}"), "-g"])
        .arg(&socket);
    if let Some(sysroot) = sysroot {
        command.arg("-L").arg(sysroot);
    }
    let child = command
        .arg(program)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("qemu-arm: is qemu-user installed?");
    let server = Server { child, socket };
    let deadline = Instant::now() + Duration::from_secs(30);
    while !server.socket.exists() {
        assert!(Instant::now() < deadline, "qemu-arm does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    server
}

impl Server {
    pub(super) fn connect(&self) -> Client {
        let deadline = Instant::now() + Duration::from_secs(30);
        let stream = loop {
            match UnixStream::connect(&self.socket) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < deadline, "qemu-arm: {error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let options = ClientOptions {
            timeout: Duration::from_secs(60),
            ..ClientOptions::default()
        };
        Client::over(stream, options).expect("session")
    }
}

/// One file in the program's memory.
struct Loaded {
    path: PathBuf,
    /// Executable addresses.
    range: Range<u64>,
    bias: u64,
    image: Image,
    /// The unstripped file, if there is one; otherwise the same image.
    names: Image,
    table: Arc<Table>,
}

/// The files in the program's memory.
pub(super) struct Memory<'s> {
    server: &'s Server,
    /// The unstripped program.
    named: PathBuf,
    loaded: Vec<Loaded>,
    pub(super) modules: ModuleMap,
}

impl<'s> Memory<'s> {
    pub(super) fn new(server: &'s Server, named: &Path) -> Memory<'s> {
        Memory {
            server,
            named: named.to_owned(),
            loaded: Vec::new(),
            modules: ModuleMap::new(Arch::Arm),
        }
    }

    /// The file that contains `pc`. It may have been mapped since the last look.
    fn at(&mut self, pc: u64) -> Option<&Loaded> {
        if !self.loaded.iter().any(|loaded| loaded.range.contains(&pc)) {
            self.look();
        }
        self.loaded.iter().find(|loaded| loaded.range.contains(&pc))
    }

    fn look(&mut self) {
        let maps = format!("/proc/{}/maps", self.server.child.id());
        let maps = std::fs::read_to_string(maps).expect("maps of qemu");
        let mut first: Option<(PathBuf, u64)> = None;
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let (Some(range), Some(_), Some(offset), Some(path)) =
                (words.next(), words.next(), words.next(), words.nth(2))
            else {
                continue;
            };
            let hex = |text: &str| u64::from_str_radix(text, 16).expect("number");
            let (start, _) = range.split_once('-').expect("range");
            let guest = hex(start).wrapping_sub(BASE);
            if guest >= 1 << 32 || !path.starts_with('/') {
                continue;
            }
            // The lowest mapping of a file has its start.
            if hex(offset) == 0
                && first
                    .as_ref()
                    .is_none_or(|(known, _)| known != Path::new(path))
            {
                first = Some((path.into(), guest));
                self.add(Path::new(path), guest);
            }
        }
    }

    fn add(&mut self, path: &Path, start: u64) {
        if self.loaded.iter().any(|loaded| loaded.path == path) {
            return;
        }
        let Ok(image) = Image::open(path) else { return };
        let lowest = image.segments().iter().map(|segment| segment.svma).min();
        let bias = start - (lowest.unwrap_or(0) & !0xfff);
        let text = image.text_ranges();
        let (Some(first), Some(last)) = (text.first(), text.last()) else {
            return;
        };
        let range = first.start + bias..last.end + bias;
        let names = if path
            .extension()
            .is_some_and(|extension| extension == "stripped")
        {
            Image::open(&self.named).expect("program")
        } else {
            image.clone()
        };
        let table = Arc::new(Table::compile(&image, &CompileOptions::default()));
        self.modules.add(Module {
            id: self.loaded.len() as u32 + 1,
            name: path.display().to_string(),
            bias,
            table: table.clone(),
        });
        self.loaded.push(Loaded {
            path: path.to_owned(),
            range,
            bias,
            image,
            names,
            table,
        });
    }

    /// Name of the function that contains `pc`. Without a name: the file, and the start of the
    /// function.
    pub(super) fn function(&mut self, pc: u64) -> String {
        let Some(loaded) = self.at(pc) else {
            return "?".to_owned();
        };
        let svma = pc - loaded.bias;
        if let Some(symbol) = loaded.names.symbols().containing(svma) {
            return symbol.name.to_owned();
        }
        let file = loaded.path.file_name().unwrap_or_default().display();
        let analysis = loaded.table.analysis();
        let start = analysis.and_then(|analysis| analysis.function_start(svma));
        format!("{file}:{:#x}", start.unwrap_or(svma))
    }

    /// Size of the instruction at `pc`, in bytes. A T32 instruction has 32 bits if its first five
    /// are 11101, 11110 or 11111 (ARM ARM, A6.1).
    pub(super) fn length(&mut self, pc: u64, thumb: bool) -> u64 {
        if !thumb {
            return 4;
        }
        let loaded = self.at(pc).expect("code");
        let half = loaded.image.bytes_at(pc - loaded.bias, 2).expect("code");
        if half[1] >= 0xe8 { 4 } else { 2 }
    }
}
