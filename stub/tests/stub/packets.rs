//! Exact packets and replies.

use super::client::{Client, field, stopped, unescape, unhex};
use super::programs::{address, build};
use super::server::Server;
use super::target::PC;

#[test]
fn greeting_and_acknowledgements() {
    let program = build("source", &["-no-pie"]);
    let server = Server::start(&["--once", ":0", program.to_str().unwrap()]);
    assert!(server.preface.contains("Process "), "{}", server.preface);
    let mut client = Client::raw(server.port);
    client.write(b"$?#00");
    assert_eq!(client.byte(), Some(b'-'));
    client.write(b"garbage$qC#b4");
    assert_eq!(client.byte(), Some(b'+'));
    let reply = client.text();
    assert!(reply.starts_with("QC"), "{reply}");
    // Without an acknowledgement, the stub repeats the reply.
    client.write(b"-");
    assert_eq!(client.text(), reply);
    client.write(b"+");
    let supported = client.ask("qSupported:multiprocess+;swbreak+");
    for feature in [
        "PacketSize=020000",
        "QStartNoAckMode+",
        "multiprocess+",
        "vContSupported+",
        "swbreak+",
        "qXfer:features:read+",
        "qXfer:auxv:read+",
        "qXfer:exec-file:read+",
        "qXfer:libraries-svr4:read+",
        "qXfer:threads:read+",
        "qXfer:siginfo:read+",
        "qXfer:siginfo:write+",
        "qXfer:osdata:read+",
        "augmented-libraries-svr4-read+",
        "QCatchSyscalls+",
        "hwbreak+",
        "QThreadEvents+",
        "QPassSignals+",
        "QProgramSignals+",
        "exec-events+",
        "no-resumed+",
        "binary-upload+",
    ] {
        assert!(
            supported.split(';').any(|item| item == feature),
            "{feature} in {supported}"
        );
    }
}

#[test]
fn unknown_monitor_commands_are_refused() {
    let program = build("source", &["-no-pie"]);
    let (_server, mut client) = Server::run(&program, &[]);
    // "frob"
    let console = client.ask("qRcmd,66726f62");
    let text = unhex(console.strip_prefix('O').expect("console output"));
    assert!(text.starts_with(b"Unknown monitor command"), "{console}");
    assert!(client.text().starts_with('E'));
}

#[test]
fn packets_can_be_disabled() {
    let program = build("source", &["-no-pie"]);
    let program = program.to_str().unwrap();
    let server = Server::start(&["--disable-packet=threads", ":0", program]);
    let mut client = Client::connect(server.port);
    for packet in ["vCont?", "qC", "qfThreadInfo"] {
        assert_eq!(client.ask(packet), "", "{packet}");
    }
    assert!(!client.ask("?").contains("thread:"));
    let server = Server::start(&["--disable-packet=T", ":0", program]);
    let mut client = Client::connect(server.port);
    assert_eq!(client.ask("?"), "S05");
}

#[test]
fn real_process_ids_and_expedited_registers() {
    let program = build("source", &["-no-pie"]);
    let (server, mut client) = Server::run(&program, &[]);
    let reply = client.ask("?");
    let (pid, tid) = stopped(&reply);
    assert_eq!(pid, tid);
    let parent = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(parent.contains(&format!("PPid:\t{}\n", server.tracer())));
    for register in ["06", "07", "10"] {
        let value = field(&reply, register).expect(&reply).to_owned();
        assert_eq!(client.ask(&format!("p{register}")), value);
    }
    assert_eq!(client.ask("vMustReplyEmpty"), "");
    assert_eq!(client.ask("qAttached:1"), "0");
    assert_eq!(client.ask("vCont?"), "vCont;c;C;s;S;t;r");
    assert_eq!(client.ask(&format!("T{tid:x}")), "OK");
    assert_eq!(client.ask("T7ffffff"), "E03");
    assert_eq!(client.ask("vCont;nonsense"), "E16");
    // gdbstub gives up at a packet that it cannot parse, and must work again afterwards.
    assert!(client.ask("Hgzz").starts_with('E'));
    client.ask("Zxyz,1,1");
    assert_eq!(client.ask("g").len(), client.ask("g").len());
    assert!(client.go().starts_with("W00"));
}

#[test]
fn memory_hides_traps_and_ends_at_holes() {
    let program = build("source", &["-no-pie"]);
    let (_server, mut client) = Server::run(&program, &[]);
    let main = address(&program, "main");
    let read = format!("m{main:x},8");
    let before = client.ask(&read);
    let (pid, _) = stopped(&client.ask("?"));
    let own = text(pid, main);
    client.plant(main);
    let trapped = text(pid, main);
    assert_ne!(trapped, own);
    assert_eq!(client.ask(&read), before);
    // A write changes the instruction under the trap. The trap stays.
    assert_eq!(client.ask(&format!("M{main:x},1:90")), "OK");
    assert_eq!(text(pid, main), trapped);
    assert_eq!(client.ask(&format!("m{main:x},1")), "90");
    let original = unhex(&before)[0];
    assert_eq!(client.ask(&format!("M{main:x},1:{original:02x}")), "OK");
    client.send(format!("x{main:x},8").as_bytes());
    let reply = client.receive();
    assert_eq!(reply[0], b'b');
    assert_eq!(unescape(&reply[1..]), unhex(&before));
    client.lift(main);
    assert_eq!(text(pid, main), own);

    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let stack = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
    let end = stack.split(['-', ' ']).nth(1).unwrap();
    let end = u64::from_str_radix(end, 16).unwrap();
    assert_eq!(client.ask(&format!("m{:x},40", end - 16)).len(), 32);
    assert!(client.ask("m10,10").starts_with('E'));
    assert!(client.ask("Z0,10,1").starts_with('E'));
}

pub fn text(pid: u32, at: u64) -> [u8; 4] {
    use std::os::unix::fs::FileExt;
    let mut bytes = [0; 4];
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    memory.read_exact_at(&mut bytes, at).unwrap();
    bytes
}

#[test]
fn qxfer_objects() {
    for flags in [&["-no-pie"][..], &["-pie", "-fPIE"], &["-static"]] {
        let program = build("source", flags);
        let (_server, mut client) = Server::run(&program, &[]);
        let (pid, _) = stopped(&client.ask("?"));
        let file = client.transfer("exec-file", &format!("{pid:x}"));
        assert_eq!(file, program.to_str().unwrap());
        // Before the dynamic linker has run, the list is empty and there is no error.
        let early = client.transfer("libraries-svr4", "");
        assert!(early.starts_with("<library-list-svr4"), "{early}");
        assert!(!early.contains("<library "), "{early}");
        client.send(b"qXfer:auxv:read::0,1000");
        let auxv = unescape(&client.receive()[1..]);
        assert_eq!(auxv, std::fs::read(format!("/proc/{pid}/auxv")).unwrap());
        let xml = client.transfer("features", "target.xml");
        assert!(xml.contains("i386:x86-64"), "{xml}");
        // ASLR is off, so a PIE's addresses are known.
        let bias = if flags.contains(&"-pie") {
            0x5555_5555_4000
        } else {
            0
        };
        let main = bias + address(&program, "main");
        client.plant(main);
        assert!(client.go().contains("swbreak:;"));
        let late = client.transfer("libraries-svr4", "");
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        for name in ["libc.so.6", "ld-linux-x86-64.so.2"] {
            assert_eq!(late.contains(name), maps.contains(name), "{late}");
        }
        assert_eq!(late.contains("main-lm=\"0x"), maps.contains("libc.so.6"));
    }
}

#[test]
fn host_files_are_read_and_never_written() {
    let program = build("source", &["-no-pie"]);
    let (_server, mut client) = Server::run(&program, &[]);
    let hex = |text: &str| text.bytes().map(|b| format!("{b:02x}")).collect::<String>();
    let path = hex(program.to_str().unwrap());
    assert_eq!(client.ask("vFile:setfs:0"), "F0");
    assert_eq!(client.ask(&format!("vFile:open:{path},0,0")), "F03");
    client.send(b"vFile:pread:3,4,0");
    assert_eq!(client.receive(), b"F04;\x7fELF");
    let mut whole = Vec::new();
    loop {
        client.send(format!("vFile:pread:3,20000,{:x}", whole.len()).as_bytes());
        let reply = client.receive();
        let start = reply.iter().position(|byte| *byte == b';').unwrap();
        let part = unescape(&reply[start + 1..]);
        if part.is_empty() {
            break;
        }
        whole.extend(part);
    }
    assert_eq!(whole, std::fs::read(&program).unwrap());
    client.send(b"vFile:fstat:3");
    let stat = client.receive();
    let start = stat.iter().position(|byte| *byte == b';').unwrap();
    let stat = unescape(&stat[start + 1..]);
    assert_eq!(stat.len(), 64);
    assert_eq!(stat[28..36], (whole.len() as u64).to_be_bytes());
    assert_eq!(client.ask("vFile:close:3"), "F0");
    assert_eq!(client.ask("vFile:close:3"), "F-1,09");
    assert_eq!(client.ask(&format!("vFile:open:{path},1,0")), "F-1,1e");
    assert_eq!(client.ask(&format!("vFile:open:{path},602,1ff")), "F-1,1e");
    assert_eq!(client.ask(&format!("vFile:unlink:{path}")), "F-1,1e");
    let missing = hex("/no/such/file");
    assert_eq!(client.ask(&format!("vFile:open:{missing},0,0")), "F-1,02");
    client.send(format!("vFile:readlink:{}", hex("/proc/self/exe")).as_bytes());
    let link = String::from_utf8_lossy(&client.receive()).into_owned();
    assert!(link.ends_with("unspool-stub"), "{link}");
}

#[test]
fn single_steps_and_ranges() {
    let program = build("source", &["-no-pie"]);
    let (_server, mut client) = Server::run(&program, &[]);
    let main = address(&program, "main");
    client.plant(main);
    let stop = client.go();
    let (pid, tid) = stopped(&stop);
    assert!(stop.starts_with("T05swbreak:;"), "{stop}");
    assert_eq!(client.register(PC), main);
    // The stub has reported the trap at the program counter, so a step executes the instruction.
    let step = client.ask(&format!("vCont;s:p{pid:x}.{tid:x}"));
    assert!(
        step.starts_with("T05") && !step.contains("swbreak"),
        "{step}"
    );
    let next = client.register(PC);
    assert!(next > main && next < main + 16);
    // The range covers all of main except its end. Functions that main calls are outside.
    let range = client.ask(&format!(
        "vCont;r{main:x},{:x}:p{pid:x}.{tid:x}",
        main + 0x200
    ));
    let pc = client.register(PC);
    assert!(range.starts_with("T05") && !(main..main + 0x200).contains(&pc));
    // A jump back to main: the stub has not reported that breakpoint yet, so it does.
    let value: String = main
        .to_le_bytes()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    assert_eq!(client.ask(&format!("P10={value}")), "OK");
    assert!(client.go().contains("swbreak:;"));
    assert_eq!(client.register(PC), main);
    client.send(b"k");
}

#[test]
fn descriptor_and_stdio_connections() {
    use std::io::{Read, Write};
    use std::process::Stdio;
    let program = build("source", &["-no-pie"]);
    let mut child = super::server::command()
        .args(["stdio", program.to_str().unwrap()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"$QStartNoAckMode#b0+$vCont;c#a8").unwrap();
    let mut text = String::new();
    let mut output = child.stdout.take().unwrap();
    let mut chunk = [0; 100];
    while !text.contains("$W00") {
        let got = output.read(&mut chunk).unwrap();
        assert!(got > 0, "{text}");
        text.push_str(std::str::from_utf8(&chunk[..got]).unwrap());
    }
    drop(input);
    assert!(child.wait().unwrap().success());
    let mut errors = String::new();
    child.stderr.unwrap().read_to_string(&mut errors).unwrap();
    // The program's output must not get into the packets, and our messages must not get into its
    // output.
    assert_eq!(errors, "total 3 global 4\n");
}
