//! Access control: which clients may connect, and what they may do.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::termios::{LocalFlags, tcgetattr};

use super::client::{Client, stopped};
use super::gdb::{assert_order, gdb};
use super::programs::{build, sleeper};
use super::server::{Server, command, send_signal};
use super::target;

fn directory(name: &str) -> PathBuf {
    let path = target::scratch().join(format!("{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn start(arguments: &[&str]) -> Child {
    let mut command = command();
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    command.stdout(Stdio::null()).spawn().unwrap()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_socket_file_is_private_and_removed_at_the_end() {
    let program = build("source", &["-O0"]);
    let socket = directory("socket").join("door");
    let comm = format!("unix:{}", socket.display());
    // The server replaces the socket file of an earlier server.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let mut server = start(&["--once", &comm, program.to_str().unwrap()]);
    let private = || {
        let metadata = std::fs::metadata(&socket);
        metadata.is_ok_and(|metadata| metadata.permissions().mode() & 0o077 == 0)
    };
    wait_until("no socket of its own", private);
    let text = gdb(
        &program,
        &format!(
            "target remote {}\nbreak add\ncontinue\nbt 1\ndelete\ncontinue\n",
            socket.display()
        ),
    );
    assert_order(&text, &["add (a=0, b=0)", "exited normally"]);
    assert!(server.wait().unwrap().success());
    assert!(!socket.exists());
}

fn is_raw(line: &impl AsFd) -> bool {
    let settings = tcgetattr(line).unwrap();
    !settings.local_flags.contains(LocalFlags::ICANON)
}

/// A pseudoterminal has the slow line discipline and special characters of a serial line, without a
/// cable.
#[test]
fn a_serial_line_carries_every_byte() {
    let program = build("source", &["-no-pie"]);
    let pair = nix::pty::openpty(None, None).unwrap();
    let line = nix::unistd::ttyname(&pair.slave).unwrap();
    let mut server = start(&[line.to_str().unwrap(), program.to_str().unwrap()]);
    // A client that speaks TCP; two threads copy its bytes to the line and back.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    wait_until("the line is not raw", || is_raw(&pair.slave));
    let mut client = Client::raw(port);
    let (mut near, _) = listener.accept().unwrap();
    let mut near_too = near.try_clone().unwrap();
    let mut far = std::fs::File::from(pair.master);
    let mut far_too = far.try_clone().unwrap();
    std::thread::spawn(move || carry(&mut near, &mut far));
    std::thread::spawn(move || carry(&mut far_too, &mut near_too));
    assert!(
        client
            .ask("qSupported:multiprocess+")
            .contains("PacketSize")
    );
    let path = hex(program.to_str().unwrap());
    assert_eq!(client.ask(&format!("vFile:open:{path},0,0")), "F03");
    client.send(b"vFile:pread:3,1000,0");
    let reply = client.receive();
    let start = reply.iter().position(|byte| *byte == b';').unwrap();
    let part = super::client::unescape(&reply[start + 1..]);
    assert_eq!(part, std::fs::read(&program).unwrap()[..0x1000]);
    assert!(client.go().starts_with("W00"));
    drop(client);
    server.kill().unwrap();
    server.wait().unwrap();
}

/// A serial line on which several clients talk to a server, one after the other.
struct Line {
    master: std::fs::File,
    /// The client that receives the server's output.
    client: Arc<Mutex<Option<TcpStream>>>,
    listener: TcpListener,
}

impl Line {
    fn new(master: std::fs::File) -> Line {
        let client = Arc::<Mutex<Option<TcpStream>>>::default();
        let (mut from, to) = (master.try_clone().unwrap(), client.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                if let Some(stream) = &mut *to.lock().unwrap() {
                    // The client may be gone.
                    let _ = stream.write_all(&buffer[..count]);
                }
            }
        });
        Line {
            master,
            client,
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
        }
    }

    /// Connects as an observer. Skips output that was meant for earlier clients.
    fn observe(&self) -> Client {
        let mut client = Client::raw(self.listener.local_addr().unwrap().port());
        let (mut near, _) = self.listener.accept().unwrap();
        *self.client.lock().unwrap() = Some(near.try_clone().unwrap());
        let mut far = self.master.try_clone().unwrap();
        std::thread::spawn(move || carry(&mut near, &mut far));
        let announced = client.ask("qSupported:multiprocess+;UnspoolObserve+");
        assert!(announced.contains("UnspoolObserve+"), "{announced}");
        assert_eq!(client.ask("QStartNoAckMode"), "OK");
        client.write(b"+");
        client
    }
}

#[test]
fn a_serial_line_serves_one_client_after_the_other() {
    let program = build("loop", &["-no-pie"]);
    let pair = nix::pty::openpty(None, None).unwrap();
    let path = nix::unistd::ttyname(&pair.slave).unwrap();
    let words = [
        path.to_str().unwrap(),
        program.to_str().unwrap(),
        "/no/such",
    ];
    let mut server = start(&words);
    // Until the server has opened the line, it echoes its input.
    wait_until("the line is not raw", || is_raw(&pair.slave));
    let line = Line::new(pair.master.into());
    let mut pid = 0;
    for detach in [true, false, false, true] {
        let mut client = line.observe();
        pid = stopped(&client.ask("?")).0;
        assert_eq!(client.ask("QUnspoolGo"), "OK");
        wait_until("threads", || client.threads().len() == 2);
        if detach {
            assert_eq!(client.ask("D"), "OK");
            let status = || std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            wait_until("the program is untraced", || {
                status().contains("TracerPid:\t0\n")
            });
        } else {
            // The host loses power in the middle of a packet.
            client.write(b"$qUnspool");
        }
    }
    // A client that knows of the program's end is done, and the server ends.
    let mut client = line.observe();
    send_signal(pid, 9);
    assert_eq!(client.told("UnspoolEnd"), format!("X09;process:{pid:x}"));
    wait_until("the server has not ended", || {
        server.try_wait().unwrap().is_some()
    });
}

fn carry(from: &mut impl Read, to: &mut impl Write) {
    let mut buffer = [0; 512];
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
}

#[test]
fn files_are_confined_to_the_root() {
    let program = build("source", &["-no-pie"]);
    let base = directory("root");
    let root = base.join("root");
    std::fs::create_dir_all(root.join("sub")).unwrap();
    std::fs::write(base.join("secret"), "secret").unwrap();
    std::fs::write(root.join("inside"), "inside").unwrap();
    std::os::unix::fs::symlink("/inside", root.join("sub/absolute")).unwrap();
    std::os::unix::fs::symlink("../../secret", root.join("sub/climbing")).unwrap();
    std::os::unix::fs::symlink(base.join("secret"), root.join("sub/out")).unwrap();
    let arguments = [
        "--root",
        root.to_str().unwrap(),
        ":0",
        program.to_str().unwrap(),
    ];
    let server = Server::start(&arguments);
    let mut client = Client::connect(server.port);
    for path in ["/inside", "inside", "/sub/absolute", "/../inside"] {
        assert_eq!(
            client.ask(&format!("vFile:open:{},0,0", hex(path))),
            "F03",
            "{path}"
        );
        client.send(b"vFile:pread:3,100,0");
        assert_eq!(client.receive(), b"F06;inside", "{path}");
        assert_eq!(client.ask("vFile:close:3"), "F0");
    }
    let secret = base.join("secret");
    for path in [
        "/sub/climbing",
        "/sub/out",
        "/../secret",
        "../secret",
        secret.to_str().unwrap(),
    ] {
        assert_eq!(
            client.ask(&format!("vFile:open:{},0,0", hex(path))),
            "F-1,02",
            "{path}"
        );
    }
    // Without --allow-write, the server writes nothing.
    assert_eq!(
        client.ask(&format!("vFile:open:{},201,1a4", hex("/new"))),
        "F-1,1e"
    );
    assert!(!root.join("new").exists());
}

#[test]
fn files_are_written_when_that_is_allowed() {
    let program = build("source", &["-no-pie"]);
    let root = directory("write");
    let arguments = [
        "--allow-write",
        "--root",
        root.to_str().unwrap(),
        ":0",
        program.to_str().unwrap(),
    ];
    let server = Server::start(&arguments);
    let mut client = Client::connect(server.port);
    // O_WRONLY, O_CREAT, O_TRUNC; 0644.
    assert_eq!(
        client.ask(&format!("vFile:open:{},601,1a4", hex("/new"))),
        "F03"
    );
    assert_eq!(client.ask("vFile:pwrite:3,0,text"), "F04");
    assert_eq!(client.ask("vFile:close:3"), "F0");
    let new = root.join("new");
    assert_eq!(std::fs::read_to_string(&new).unwrap(), "text");
    assert_eq!(new.metadata().unwrap().permissions().mode() & 0o777, 0o644);
    assert_eq!(client.ask(&format!("vFile:unlink:{}", hex("/new"))), "F0");
    assert!(!new.exists());
}

#[test]
fn only_some_processes_may_be_attached_to() {
    let (mut one, mut other) = (sleeper(), sleeper());
    let allowed = one.id().to_string();
    let server = Server::start(&["--may-attach", &allowed, "--multi", ":0"]);
    let mut client = Client::connect(server.port);
    assert_eq!(client.ask("!"), "OK");
    // EPERM
    assert_eq!(client.ask(&format!("vAttach;{:x}", other.id())), "E01");
    let stop = client.ask(&format!("vAttach;{:x}", one.id()));
    assert_eq!(stopped(&stop).0, one.id());
    assert_eq!(client.ask("D"), "OK");
    for sleep in [&mut one, &mut other] {
        sleep.kill().unwrap();
        sleep.wait().unwrap();
    }
}
