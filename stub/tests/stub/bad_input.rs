//! Invalid input: the error is one sentence that says how to fix it.

use std::os::unix::fs::PermissionsExt;

use super::client::Client;
use super::programs::{build, sleeper};
use super::server::{Server, command};
use super::target;

/// Runs the server, which must fail, and returns its one line of error output.
fn complaint(arguments: &[&str]) -> String {
    let output = command().args(arguments).output().unwrap();
    assert!(!output.status.success(), "{arguments:?}");
    assert!(output.status.code().is_some(), "{arguments:?} crashed");
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn programs_that_cannot_be_started() {
    let directory = target::scratch().join("bad");
    std::fs::create_dir_all(&directory).unwrap();
    let file = |name: &str, content: &[u8], mode: u32| {
        let path = directory.join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    assert!(complaint(&[":0", "/no/such/program"]).contains("no such program"));
    assert!(complaint(&[":0", "no-such-program"]).contains("no such program"));
    let plain = file("plain", b"text", 0o644);
    assert!(complaint(&[":0", &plain]).contains("chmod +x"));
    let mut arm = std::fs::read(build("source", &[])).unwrap();
    arm[18] = 40; // e_machine: EM_ARM
    let arm = file("arm", &arm, 0o755);
    assert!(complaint(&[":0", &arm]).contains("wrong architecture"));
    let script = file("script", b"#!/no/such/interpreter\n", 0o755);
    assert!(complaint(&[":0", &script]).contains("interpreter"));
}

#[test]
fn processes_that_cannot_be_attached_to() {
    assert!(complaint(&["--attach", ":0", "4194000"]).contains("no such process"));
    let mut sleep = sleeper();
    let pid = sleep.id().to_string();
    let server = Server::start(&["--attach", ":0", &pid]);
    assert!(complaint(&["--attach", ":0", &pid]).contains("is tracing it already"));
    drop(server);
    let nobody = std::process::Command::new("setpriv")
        .args(["--reuid", "65534", "--clear-groups"])
        .arg(env!("CARGO_BIN_EXE_unspool-stub"))
        .args(["--attach", ":0", "1"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert!(!nobody.status.success());
    assert!(
        text.contains("ptrace_scope") || text.contains("ermission"),
        "{text}"
    );
    sleep.kill().unwrap();
    sleep.wait().unwrap();
}

#[test]
fn invalid_ports_descriptors_and_options() {
    let program = build("source", &["-no-pie"]);
    let program = program.to_str().unwrap();
    let server = Server::start(&[":0", program]);
    let taken = format!(":{}", server.port);
    let text = complaint(&[&taken, program]);
    assert!(
        text.contains("Can't bind address: Address already in use."),
        "{text}"
    );
    assert!(
        complaint(&["fd:99", program]).contains("fd:")
            || complaint(&["fd:99", program]).contains("not open")
    );
    assert!(complaint(&["--frob", ":0", program]).contains("--frob"));
    for good in ["--version", "--help", "-h"] {
        let output = command().arg(good).output().unwrap();
        assert!(output.status.success());
        assert!(
            String::from_utf8(output.stdout)
                .unwrap()
                .contains("unspool-stub")
        );
        // A reader that has gone, as `| head -0` leaves it.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command().arg(good).stdout(writer).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && text.is_empty(), "{text}");
    }
}

#[test]
fn garbage_and_half_packets_do_no_harm() {
    let program = build("source", &["-no-pie"]);
    let server = Server::start(&[":0", program.to_str().unwrap()]);
    let mut seed = 12345u64;
    for round in 0..40 {
        let mut client = Client::raw(server.port);
        let mut bytes = Vec::new();
        for _ in 0..2000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            bytes.push((seed >> 33) as u8);
        }
        if round % 2 == 0 {
            bytes.extend_from_slice(b"$m");
        }
        client.write(&bytes);
    }
    let mut client = Client::connect(server.port);
    assert!(client.ask("?").starts_with("T05"));
    // Malformed packets with correct framing, one for each packet that takes arguments.
    for packet in [
        "m",
        "m,",
        "m1",
        "M",
        "M1,1",
        "M1,4:00",
        "X1,4:",
        "x",
        "P",
        "P1",
        "p",
        "G",
        "G00",
        "Z",
        "Z0",
        "Z0,1",
        "Z9,1,1",
        "z0",
        "H",
        "Hg",
        "T",
        "vCont;",
        "vCont;c:",
        "vFile:",
        "vFile:open:",
        "vFile:pread:3",
        "vFile:pread:3,ffffffffffffffff,ffffffffffffffff",
        "vRun",
        "vAttach;",
        "vAttach;zz",
        "qXfer:auxv:read::",
        "qXfer:threads:read::zz,1",
        "qXfer:features:read:target.xml:ffffffffffffffff,ffffffffffffffff",
        "qXfer:nothing:read::0,1",
        "QPassSignals:zz",
        "QThreadEvents:7",
        "qRcmd,",
        "qRcmd,zz",
        "QEnvironmentHexEncoded:zz",
        "D;zz",
        "vKill;zz",
        "qThreadExtraInfo,",
        "C",
        "Czz",
        "S",
        "mffffffffffffffff,ffffffffffffffff",
        "Mffffffffffffffff,2:0000",
    ] {
        // Console output precedes the reply.
        let mut reply = client.ask(packet);
        while reply.len() > 2 && reply.starts_with('O') {
            reply = client.text();
        }
    }
    let end = client.go();
    assert!(end.starts_with("W00"), "{end}");
}
