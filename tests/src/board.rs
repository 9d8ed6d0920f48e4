//! The emulated board: a virtual machine with its own ARM Linux kernel.
//!
//! `qemu/board.sh` boots it when the first trial needs it. All trials share it, and it stops with
//! this process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::inspection::Library;
use crate::memo::Memo;
use crate::process;
use crate::wire::read_some;
use crate::workspace;

/// Time limit of any action on the board, which is emulated and shares two processors with the
/// tests.
const LIMIT: Duration = Duration::from_secs(300);

/// The machine to boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Machine {
    /// Cortex-A15, Debian armhf.
    Arm,
    /// Cortex-A72, Debian arm64.
    Arm64,
}

impl Machine {
    /// Both machines.
    pub const ALL: [Machine; 2] = [Machine::Arm, Machine::Arm64];

    /// Its name in `qemu/board.sh`.
    pub fn name(self) -> &'static str {
        match self {
            Machine::Arm => "arm",
            Machine::Arm64 => "arm64",
        }
    }

    /// The name of a cross tool for it: `gcc`, `nm`, `objdump`.
    pub fn tool(self, name: &str) -> String {
        match self {
            Machine::Arm => format!("arm-linux-gnueabihf-{name}"),
            Machine::Arm64 => format!("aarch64-linux-gnu-{name}"),
        }
    }

    /// Its Rust target triple.
    pub fn triple(self) -> &'static str {
        match self {
            Machine::Arm => "armv7-unknown-linux-gnueabihf",
            Machine::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// The file for gcc's `-specs` option that compiles and links programs with the sysroot's musl.
    /// Debian's own file expects installed packages.
    fn musl(self) -> Result<Arc<PathBuf>> {
        static SPECS: Memo<Machine, PathBuf> = Memo::new();
        let folder = match self {
            Machine::Arm => "arm-linux-musleabihf",
            Machine::Arm64 => "aarch64-linux-musl",
        };
        SPECS.get(self, || {
            let sysroot = self.sysroot()?;
            let installed = sysroot.join("usr/lib").join(folder).join("musl-gcc.specs");
            let installed = std::fs::read_to_string(&installed)
                .with_context(|| installed.display().to_string())?;
            let sysroot = sysroot.display();
            // `-L`, because the library is in /usr/lib, which is /lib only on systems with
            // installed packages.
            let specs = installed
                .replace("-L/usr/", &format!("-L{sysroot}/lib/{folder} -L/usr/"))
                .replace("/usr/", &format!("{sysroot}/usr/"));
            let parent = workspace::target_directory();
            let file = parent.join(format!("{folder}.specs"));
            // Other processes may be reading the file.
            let fresh = tempfile::NamedTempFile::new_in(parent)?;
            std::fs::write(fresh.path(), specs)?;
            fresh.persist(&file)?;
            Ok(file)
        })
    }

    /// gdb's number of the program counter.
    pub fn pc(self) -> u32 {
        match self {
            Machine::Arm => 15,
            Machine::Arm64 => 32,
        }
    }

    /// The Debian libraries that its programs need.
    pub fn sysroot(self) -> Result<Arc<PathBuf>> {
        static SYSROOTS: Memo<Machine, PathBuf> = Memo::new();
        let debian = match self {
            Machine::Arm => "armhf",
            Machine::Arm64 => "arm64",
        };
        SYSROOTS.get(self, || {
            let directory = workspace::target_directory().join(format!("sysroot-{debian}"));
            let mut script = Command::new(workspace::root().join("qemu/sysroot.sh"));
            script.arg(&directory).arg(debian);
            process::run(&mut script, Duration::from_secs(600))?.success()?;
            Ok(directory)
        })
    }
}

/// The C library of a test program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linked {
    /// glibc, the compiler's default.
    Glibc,
    /// musl, dynamically.
    Musl,
    /// musl, statically.
    MuslInside,
}

impl Linked {
    /// Options for the compiler. musl does not record the holder of an ordinary mutex, so some are
    /// made robust.
    pub fn options(self, machine: Machine) -> Result<Vec<String>> {
        let mut options = Vec::new();
        if self != Linked::Glibc {
            options.push(format!("-specs={}", machine.musl()?.display()));
            options.push("-DROBUST".to_owned());
        }
        if self == Linked::MuslInside {
            options.push("-static".to_owned());
        }
        Ok(options)
    }

    /// The library with the program's primitives.
    pub fn library(self) -> Library {
        match self {
            Linked::Glibc => Library::Glibc,
            Linked::Musl | Linked::MuslInside => Library::Musl,
        }
    }
}

/// A booted board.
#[derive(Debug)]
pub struct Board {
    shell: u16,
    put: u16,
    monitor: Mutex<UnixStream>,
    /// The socket of its second serial port.
    pub serial: String,
    /// Closing its standard input stops the board.
    script: Mutex<Child>,
}

/// A stub (or another server) that listens on the board.
#[derive(Debug)]
pub struct Server {
    board: &'static Board,
    /// Its port on this machine's loopback interface.
    pub port: u16,
    pid: u32,
    output: Option<std::thread::JoinHandle<String>>,
}

/// The board, booted on first use.
pub fn get(machine: Machine) -> Result<&'static Board> {
    static ARM: OnceLock<Result<Board, String>> = OnceLock::new();
    static ARM64: OnceLock<Result<Board, String>> = OnceLock::new();
    let name = machine.name();
    let cell = match machine {
        Machine::Arm => &ARM,
        Machine::Arm64 => &ARM64,
    };
    cell.get_or_init(|| boot(name).map_err(|error| format!("{error:#}")))
        .as_ref()
        .map_err(|error| anyhow!("the {name} board: {error}"))
}

fn boot(name: &str) -> Result<Board> {
    let script = || {
        let mut command = Command::new(workspace::root().join("qemu/board.sh"));
        command
            .arg(name)
            .env("CARGO_TARGET_DIR", workspace::target_directory());
        command
    };
    // Separate, because the first build takes long and its messages matter.
    process::run(script().arg("--build"), Duration::from_secs(1200))?.success()?;
    let mut child = process::start(
        script()
            .arg("--headless")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit()),
    )?;
    let mut lines = BufReader::new(child.stdout.take().context("piped")?).lines();
    let mut place = |name: &str| -> Result<String> {
        let line = lines.next().context("the board's script ended")??;
        let value = line
            .strip_prefix(name)
            .with_context(|| format!("expected '{name}', the script says '{line}'"))?;
        Ok(value.trim().to_owned())
    };
    place("gdb")?;
    let (shell, put) = (place("shell")?.parse()?, place("put")?.parse()?);
    let serial = place("serial")?;
    let monitor = UnixStream::connect(place("monitor")?)?;
    monitor.set_read_timeout(Some(LIMIT))?;
    let console = place("console")?;
    let board = Board {
        shell,
        put,
        monitor: Mutex::new(monitor),
        serial,
        script: Mutex::new(child),
    };
    let deadline = Instant::now() + LIMIT;
    while !board.answers() {
        let console = || std::fs::read_to_string(&console).unwrap_or_default();
        ensure!(
            Instant::now() < deadline,
            "does not boot in {LIMIT:?}; its console says:\n{}",
            console()
        );
        board.is_up()?;
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(board)
}

impl Board {
    /// An error if the board has stopped. Its last output is in the script's messages.
    fn is_up(&self) -> Result<()> {
        let mut script = self.script.lock().unwrap_or_else(|held| held.into_inner());
        let ended = script.try_wait()?;
        ensure!(
            ended.is_none(),
            "the board has ended; see above for its last words"
        );
        Ok(())
    }

    /// Whether the shell's port accepts connections.
    fn answers(&self) -> bool {
        let attempt = || -> Result<String> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.shell))?;
            stream.set_read_timeout(Some(Duration::from_secs(2)))?;
            stream.write_all(b"echo here\n")?;
            stream.shutdown(Shutdown::Write)?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        };
        attempt().is_ok_and(|text| text == "here\n")
    }

    /// Runs a shell script; returns its standard output and error.
    pub fn shell(&self, script: &str) -> Result<String> {
        let mut stream = self.open_shell(script)?;
        stream.shutdown(Shutdown::Write)?;
        let mut text = Vec::new();
        stream
            .read_to_end(&mut text)
            .with_context(|| format!("on the board: {script}"))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn open_shell(&self, script: &str) -> Result<TcpStream> {
        self.is_up()?;
        let mut stream = TcpStream::connect(("127.0.0.1", self.shell))?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.write_all(format!("{script}\n").as_bytes())?;
        Ok(stream)
    }

    /// Copies a file to a directory on the board under its own name; returns its path there.
    pub fn put(&self, file: &Path, directory: &str) -> Result<String> {
        let name = file
            .file_name()
            .context("a file")?
            .to_string_lossy()
            .into_owned();
        self.unpack(file.parent().unwrap_or(Path::new(".")), &name, directory)?;
        Ok(format!("{directory}/{name}"))
    }

    /// Copies the content of a directory to one on the board.
    pub fn put_all(&self, from: &Path, directory: &str) -> Result<()> {
        self.unpack(from, ".", directory)
    }

    fn unpack(&self, from: &Path, what: &str, directory: &str) -> Result<()> {
        let inside = directory.trim_start_matches('/');
        let mut tar = Command::new("tar");
        tar.args(["-c", "--dereference", "-C"])
            .arg(from)
            .arg(format!("--transform=s,^,{inside}/,"))
            .arg(what);
        let archive = process::run(&mut tar, LIMIT)?.success()?.stdout;
        let mut stream = TcpStream::connect(("127.0.0.1", self.put))?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.write_all(&archive)?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        ensure!(
            answer == "done\n",
            "putting {what} of {} on the board: {answer:?}",
            from.display()
        );
        Ok(())
    }

    /// Starts a server with this command line, in which port 0 means any, and waits until it
    /// listens.
    pub fn serve(&'static self, command: &str) -> Result<Server> {
        let stream = self.open_shell(&format!("echo $$; exec {command}"))?;
        let mut lines = BufReader::new(stream);
        let mut seen = Vec::new();
        let guest: u16 = loop {
            let mut line = String::new();
            if lines.read_line(&mut line)? == 0 {
                bail!("'{command}' ended before it listened: {seen:?}");
            }
            if let Some(port) = line.trim().strip_prefix("Listening on port ") {
                break port.parse()?;
            }
            seen.push(line);
        };
        let pid = seen.first().context("no process id")?.trim().parse()?;
        // The program may print nothing for as long as its debugger needs.
        lines.get_ref().set_read_timeout(None)?;
        let output = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = lines.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        let port = self.forward(guest)?;
        Ok(Server {
            board: self,
            port,
            pid,
            output: Some(output),
        })
    }

    /// Forwards a port of this machine's loopback interface to a port of the board.
    pub fn forward(&self, guest: u16) -> Result<u16> {
        let mut monitor = self.monitor.lock().unwrap_or_else(|held| held.into_inner());
        monitor.write_all(format!("hostfwd_add net tcp:127.0.0.1:0-:{guest}\n").as_bytes())?;
        monitor.write_all(b"info usernet\nprint 4242\n")?;
        let mut text = String::new();
        let mut buffer = [0; 65536];
        // The last command is an echo; its answer means that everything has arrived.
        while !text.contains("0x1092") {
            let got = read_some(&mut *monitor, &mut buffer)?;
            ensure!(got > 0, "qemu's monitor is closed");
            text.push_str(&String::from_utf8_lossy(&buffer[..got]));
        }
        // TCP[HOST_FORWARD]  12       127.0.0.1 40123       10.0.2.15  1234     0     0
        text.lines()
            .filter_map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let there = words.first()?.starts_with("TCP[HOST_FORWARD]")
                    && words.get(5)?.parse() == Ok(guest);
                words.get(3).filter(|_| there)?.parse().ok()
            })
            .next_back()
            .with_context(|| format!("qemu forwards nothing to port {guest}: {text}"))
    }
}

impl Server {
    /// The address for clients.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its process id on the board.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for its end; returns the output of the server and the program.
    pub fn finish(mut self) -> Result<String> {
        let output = self.output.take().context("not finished yet")?;
        process::wait_until("the server on the board ends", LIMIT, || {
            output.is_finished()
        })?;
        output
            .join()
            .map_err(|_| anyhow!("the reader of its output"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.output.is_some() {
            let _ = self.board.shell(&format!("kill -9 {}", self.pid));
        }
    }
}
