//! The name of a program, and the location of its files if paths are links or relative.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::running::{Live, Run, created, report, signal, subject, unspool, wait_for};

fn compile(compiler: &str, options: &[&str], source: &str, output: &Path) {
    let file = output.with_extension("c");
    std::fs::write(&file, source).unwrap();
    let mut command = Command::new(compiler);
    command.args(options).arg("-o").args([output, &file]);
    assert!(command.status().expect("a C compiler").success());
}

/// The kernel names a process by the last part of the path that started it. So does Unspool, and it
/// still finds the file.
#[test]
fn a_program_is_called_as_it_was_started() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("other-name");
    symlink(subject(), &link).unwrap();
    let script = dir.path().join("script");
    let line = format!("#!{} until-signal\n", subject().display());
    std::fs::write(&script, line).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    for (path, args) in [(&link, &["until-signal"][..]), (&script, &[])] {
        let mut program = Live::start(Command::new(path).args(args));
        program.line();
        let pid = program.pid().to_string();
        let kernels = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
        let look = |format: &[&str]| {
            let run = Run::of(unspool().args(["inspect", "--attach", &pid]).args(format));
            run.succeeds();
            run.stdout
        };
        let json: Value = serde_json::from_str(&look(&["--format", "json"])).unwrap();
        let target = &json["target"];
        assert_eq!(target["name"], kernels.trim_end());
        assert_eq!(target["executable"], subject().to_str().unwrap());
        let text = look(&[]);
        let called = format!("{} (pid {pid}, ", kernels.trim_end());
        assert!(text.starts_with(&called), "{text}");
        signal(program.pid(), Signal::SIGTERM);
        program.wait();
    }
}

/// The dynamic linker keeps a relative path as it is, and the program has changed its directory
/// since.
#[test]
fn a_library_of_a_relative_path_has_names() {
    let dir = tempfile::tempdir().unwrap();
    let library = r#"
#include <pthread.h>
static void *plugged(void *argument) { return argument; }
void go(void) { pthread_t t; pthread_create(&t, 0, plugged, 0); pthread_join(t, 0); }
"#;
    let options = ["-g", "-shared", "-fPIC"];
    compile("cc", &options, library, &dir.path().join("plugin.so"));
    let main = r#"
#include <dlfcn.h>
#include <unistd.h>
int main(void)
{
    void *plugin = dlopen("./plugin.so", RTLD_NOW);
    if (plugin == 0 || chdir("/") != 0)
        return 1;
    ((void (*)(void))dlsym(plugin, "go"))();
    return 0;
}
"#;
    let program = dir.path().join("plugged");
    compile("cc", &["-g", "-pthread"], main, &program);
    let file = dir.path().join("capture");
    let mut command = unspool();
    command.current_dir(&dir).args(["record", "-q", "-o"]);
    Run::of(command.arg(&file).arg("--").arg(&program)).succeeds();
    let report = report(&file);
    let [thread] = created(&report)[..] else {
        panic!("{report}");
    };
    assert_eq!(thread["function"], "plugged");
    assert_eq!(thread["creation"][0]["function"], "go");
}

/// Unspool looks up the function that the linker calls on loading in the linker alone, because the
/// names of a large program take long to read.
#[test]
fn a_program_function_is_not_mistaken_for_the_linkers() {
    let dir = tempfile::tempdir().unwrap();
    let source = r#"
#include <pthread.h>
void _dl_debug_state(void) {}
static void *work(void *argument) { return argument; }
int main(void) { pthread_t t; pthread_create(&t, 0, work, 0); pthread_join(t, 0); return 0; }
"#;
    let program = dir.path().join("program");
    compile("cc", &["-g", "-pthread"], source, &program);
    let file = dir.path().join("capture");
    let mut command = unspool();
    command.args(["record", "-q", "-o"]).arg(&file).arg("--");
    Run::of(command.arg(&program)).succeeds();
    let report = report(&file);
    let [thread] = created(&report)[..] else {
        panic!("{report}");
    };
    assert_eq!(thread["function"], "work");
}

/// QEMU's user mode reports the program's path exactly as it was given, and sends no files.
#[test]
fn a_program_that_qemu_was_given_by_a_relative_path_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let source = r#"
#include <pthread.h>
static void *work(void *argument) { return argument; }
int main(void) { pthread_t t; pthread_create(&t, 0, work, 0); pthread_join(t, 0); return 0; }
"#;
    // The second program has nothing that proves the file right.
    let builds = [("proved", "-Wl,--build-id"), ("not", "-Wl,--build-id=none")];
    for (name, build_id) in builds {
        let options = ["-g", "-static", "-pthread", build_id];
        compile(
            "arm-linux-gnueabihf-gcc",
            &options,
            source,
            &dir.path().join(name),
        );
        let socket = dir.path().join(format!("{name}.socket"));
        let path = socket.display().to_string();
        let mut emulator = Command::new("qemu-arm");
        emulator.current_dir(&dir).stdin(Stdio::null());
        emulator.arg("-g").arg(&socket).arg(format!("./{name}"));
        let mut emulator = Live::start(&mut emulator);
        let listens = || {
            let table = std::fs::read_to_string("/proc/net/unix").ok()?;
            let mut lines = table.lines();
            // The flag marks a listening socket.
            let own = |line: &&str| line.ends_with(&path) && line.contains(" 00010000 ");
            lines.find(own).map(drop)
        };
        assert!(wait_for(std::time::Duration::from_secs(30), listens).is_some());
        let file = dir.path().join(format!("{name}.capture"));
        let mut command = unspool();
        command.current_dir(&dir).args(["record", "-q", "-o"]);
        let endpoint = format!("unix:{path}");
        let run = Run::of(command.arg(&file).args(["--connect", &endpoint]));
        run.succeeds();
        assert!(emulator.wait().success());
        // The report may run in any directory.
        let report = report(&file);
        let [thread] = created(&report)[..] else {
            panic!("{report}");
        };
        assert_eq!(thread["function"], "work", "{name}: {}", run.stderr);
        let notes = report["notes"].to_string();
        assert_eq!(
            notes.contains("may differ from the target"),
            name == "not",
            "{notes}"
        );
    }
}
