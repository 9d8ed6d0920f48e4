//! Tests with real gdb 13.

use super::gdb::{assert_order, gdb};
use super::programs::{build, sleeper};
use super::server::Server;
use super::target::STUB;

#[test]
fn break_step_next_finish_watch() {
    let program = build("source", &["-O0"]);
    let text = gdb(
        &program,
        &format!(
            "target remote | {STUB} - {}\nbreak main\ncontinue\ninfo sharedlibrary\nnext\nnext\nstep\n\
             bt\nstepi\nfinish\nset can-use-hw-watchpoints 0\nwatch global\ncontinue\n\
             delete\nbreak add if a == 1\ncontinue\np a\np b\ndelete\ncontinue\n",
            program.display()
        ),
    );
    assert_order(
        &text,
        &[
            "Breakpoint 1, main",
            "libc.so.6",
            "add (a=0, b=0)",
            "#1 ",
            "main",
            "Value returned is $1 = 0",
            "Watchpoint 2: global",
            "Old value = 0",
            "New value = 1",
            "Breakpoint 3, add (a=1, b=2)",
            "$2 = 1",
            "$3 = 2",
            "exited normally",
        ],
    );
}

#[test]
fn debug_registers_find_writes_reads_and_places() {
    let program = build("source", &["-O0"]);
    let text = gdb(
        &program,
        &format!(
            "target remote | {STUB} - {}\nbreak main\ncontinue\nwatch global\ncontinue\ndelete 2\n\
             awatch global\ncontinue\ncontinue\ndelete 3\nhbreak add\ncontinue\ndelete 4\ncontinue\n",
            program.display()
        ),
    );
    assert_order(
        &text,
        &[
            "Hardware watchpoint 2: global",
            "Old value = 0",
            "New value = 1",
            "Hardware access (read/write) watchpoint 3: global",
            "Value = 1",
            "Old value = 1",
            "New value = 4",
            "Hardware assisted breakpoint 4",
            "exited normally",
        ],
    );
}

#[test]
fn every_thread_watches() {
    let program = build("hits", &[]);
    let text = gdb(
        &program,
        &format!(
            "target remote | {STUB} - {} 4 200\nbreak main\ncontinue\nwatch counts[3]\ncontinue\ncontinue\n\
             info threads\ndelete\ncontinue\n",
            program.display()
        ),
    );
    assert_order(
        &text,
        &[
            "Old value = 0",
            "New value = 1",
            "Old value = 1",
            "New value = 2",
            "worker-3",
            "exited normally",
        ],
    );
}

#[test]
fn gdb_catches_system_calls_by_number() {
    let program = build("source", &[]);
    let text = gdb(
        &program,
        &format!(
            "target remote | {STUB} - {}\nbreak main\ncontinue\ncatch syscall write\ncontinue\ncontinue\n\
             delete\ncontinue\n",
            program.display()
        ),
    );
    assert_order(
        &text,
        &[
            "(call to syscall write)",
            "(returned from syscall write)",
            "exited normally",
        ],
    );
}

#[test]
fn memory_is_searched_and_summed_on_the_target() {
    let program = build("source", &["-no-pie"]);
    let text = gdb(
        &program,
        &format!(
            "target remote | {STUB} - {}\nbreak main\ncontinue\ndelete\ncompare-sections .rodata\n\
             find (char *)&global - 64, +1024, 'n', 'o', 'w', 'h', 'e', 'r', 'e'\n\
             set var global = 0x12345678\nfind (char *)&global - 16, +64, 0x12345678\n\
             info os processes\nkill\n",
            program.display()
        ),
    );
    assert_order(
        &text,
        &[
            "matched.",
            "Pattern not found.",
            "<global>",
            "1 pattern found.",
            "user",
            "command",
        ],
    );
}

#[test]
fn gdb_changes_the_siginfo_of_a_signal() {
    let program = build("signals", &["-O0"]);
    let text = gdb(
        &program,
        &format!(
            "target remote | {STUB} - {}\nhandle all nostop noprint\nhandle SIG37 stop\ncontinue\n\
             p $_siginfo._sifields._rt.si_sigval.sival_int = 1005\nhandle SIG37 nostop\ncontinue\n",
            program.display()
        ),
    );
    assert_order(&text, &["SIG37", "$1 = 1005", "exited normally"]);
    assert!(text.contains("rt 50 value 1250"), "{text}");
}

#[test]
fn one_thread_stops_while_the_others_run() {
    let program = build("hits", &[]);
    let text = gdb(
        &program,
        &format!(
            "set non-stop on\ntarget remote | {STUB} - {} 4 2000\nbreak hit if count == &counts[3]\n\
             continue -a\ninfo threads\ndelete\ncontinue -a\n",
            program.display()
        ),
    );
    assert_order(
        &text,
        &["hit Breakpoint 1, hit (", "(running)", "exited normally"],
    );
}

#[test]
fn threads_with_names_and_backtraces() {
    let program = build("hits", &[]);
    let text = gdb(
        &program,
        &format!(
            "target remote | {STUB} - {} 4 200\nbreak hit if count == &counts[3]\ncontinue\ninfo threads\nthread apply all bt\ndelete\ncontinue\n",
            program.display()
        ),
    );
    assert_order(&text, &["\"worker-3\"", "hit ("]);
    assert!(text.matches("in work (").count() >= 1, "{text}");
    assert_order(
        &text,
        &[
            "Thread ",
            "in work (",
            "start_thread",
            "main (",
            "exited normally",
        ],
    );
}

#[test]
fn conditional_breakpoint_counts_are_exact() {
    let program = build("hits", &[]);
    let text = gdb(
        &program,
        &format!(
            "target remote | {STUB} - {} 8 120\nset $n = 0\nbreak hit if $n++ < 0\ncontinue\np $n\n",
            program.display()
        ),
    );
    assert_order(&text, &["total 960", "exited normally", "= 960"]);
}

#[test]
fn gdb_interrupts_and_detaches_and_the_program_runs_on() {
    let program = build("hits", &[]);
    let mut server = Server::start(&["--once", ":0", program.to_str().unwrap(), "4", "400000000"]);
    // Interrupt while the program runs, seconds before its end.
    let text = gdb(
        &program,
        &format!(
            "target remote :{}\npython\nimport threading\n\
             def later(_):\n  gdb.events.cont.disconnect(later)\n\
             \x20 interrupt = lambda: gdb.post_event(lambda: gdb.execute('interrupt'))\n\
             \x20 threading.Timer(0.1, interrupt).start()\n\
             end\nbreak hit if count == &counts[3]\ncontinue\ndelete\n\
             python gdb.events.cont.connect(later)\ncontinue\ninfo threads\ndetach\n",
            server.port
        ),
    );
    assert_order(&text, &["SIGINT", "worker-", "detached"]);
    server.wait();
    assert_eq!(server.output(), "total 1600000000\n");
}

#[test]
fn extended_mode_runs_kills_and_runs_again() {
    let program = build("source", &[]);
    let mut server = Server::start(&["--multi", ":0"]);
    let text = gdb(
        &program,
        &format!(
            "target extended-remote :{}\nset remote exec-file {}\nbreak add\nrun\nbt 1\nkill\nrun\n\
             info threads\ndelete\ncontinue\nrun\nmonitor help\nmonitor exit\n",
            server.port,
            program.display()
        ),
    );
    assert_order(
        &text,
        &[
            "Breakpoint 1.",
            "killed",
            "Breakpoint 1.",
            "exited normally",
            "The following monitor commands",
        ],
    );
    server.wait();
    assert_eq!(server.output(), "total 3 global 4\n".repeat(2));
}

#[test]
fn attach_by_number_and_errors_of_run() {
    let program = build("many", &[]);
    let server = Server::start(&["--multi", ":0"]);
    let mut sleep = sleeper();
    let text = gdb(
        &program,
        &format!(
            "target extended-remote :{0}\nattach {1}\ninfo inferiors\ndetach\n\
             set remote exec-file /no/such/program\nrun\n",
            server.port,
            sleep.id()
        ),
    );
    assert_order(&text, &[&format!("process {}", sleep.id()), "detached"]);
    assert!(text.contains("failed"), "{text}");
    assert!(sleep.try_wait().unwrap().is_none());
    sleep.kill().unwrap();
    sleep.wait().unwrap();
}

/// In non-stop mode a process keeps running when gdb attaches to it, because gdb can parse a stop
/// only after it has read the registers. The mode belongs to the connection: a program that is
/// started after all others were detached is in it, too.
#[test]
fn targets_that_are_always_non_stop() {
    let program = build("source", &["-O0"]);
    let server = Server::start(&["--multi", ":0"]);
    let mut sleep = sleeper();
    let text = gdb(
        &program,
        &format!(
            "maint set target-non-stop on\ntarget extended-remote :{0}\nset remote exec-file {1}\n\
             add-inferior\ninferior 2\nattach {2}\ninfo inferiors\nprint $pc != 0\ndetach\n\
             inferior 1\nbreak add\nrun\nprint a + 30\nkill\n",
            server.port,
            program.display(),
            sleep.id(),
        ),
    );
    let pid = format!("process {}", sleep.id());
    assert_order(
        &text,
        &[&pid, "$1 = 1", "detached", "Breakpoint 1, add", "$2 = 30"],
    );
    assert!(!text.contains("badly formatted"), "{text}");
    assert!(sleep.try_wait().unwrap().is_none());
    sleep.kill().unwrap();
    sleep.wait().unwrap();
}

#[test]
fn signals_and_exec() {
    let program = build("signals", &[]);
    let text = gdb(
        &program,
        &format!(
            "target remote | {STUB} - {} s\nhandle SIGUSR1 nostop noprint pass\n\
             handle SIGUSR2 nostop noprint pass\nhandle SIG37 nostop noprint pass\n\
             continue\np $_siginfo.si_signo\np $_siginfo._sifields._sigfault.si_addr\ncontinue\n",
            program.display()
        ),
    );
    assert_order(
        &text,
        &[
            "usr1 50 usr2 1 rt 50 value 250",
            "SIGSEGV",
            "= 11",
            "0x10",
            "Program terminated with signal SIGSEGV",
        ],
    );
    let program = build("exec", &[]);
    let text = gdb(
        &program,
        &format!(
            "target remote | {STUB} - {}\nbreak again\ncontinue\nbt 1\ncontinue\n",
            program.display()
        ),
    );
    assert_order(
        &text,
        &["is executing new program", "again", "exited with code 011"],
    );
}

#[test]
fn thread_local_variables() {
    let program = build("tls", &["-O0", "-ldl"]);
    let library = build("tls_library", &["-shared", "-fPIC"]);
    let text = gdb(
        &program,
        &format!(
            "target remote | {STUB} - {} {}\nbreak meet\ncontinue\n\
             thread apply 1-3 print own\nthread apply 1-3 print mine\n\
             set scheduler-locking on\nthread apply 1-3 print place() == &mine\n\
             set scheduler-locking off\ndelete\ncontinue\n",
            program.display(),
            library.display()
        ),
    );
    let printed = |line: &str| line.strip_prefix('$')?.split_once(" = ")?.1.parse().ok();
    let mut values: Vec<i32> = text.lines().filter_map(printed).collect();
    assert_eq!(values.len(), 9, "{text}");
    let equal = values.split_off(6);
    assert_eq!(equal, [1, 1, 1], "{text}");
    let mine = values.split_off(3);
    let mut sorted = values.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [1, 2, 3], "{text}");
    let expected: Vec<i32> = values.iter().map(|own| 100 + own).collect();
    assert_eq!(mine, expected, "{text}");
    assert_order(&text, &["exited normally"]);
}

#[test]
fn parent_and_child_are_debugged_together() {
    let program = build("family", &["-O0"]);
    let text = gdb(
        &program,
        &format!(
            "set detach-on-fork off\ntarget remote | {STUB} - {}\nbreak in_child\nbreak in_parent\n\
             catch fork\ncontinue\nnext\ninfo inferiors\ninferior 2\ncontinue\nbt 1\ncontinue\n\
             inferior 1\ncontinue\nprint status\ncontinue\n",
            program.display()
        ),
    );
    assert_order(
        &text,
        &[
            "Catchpoint 3 (forked process",
            "* 1 ",
            "  2 ",
            "Switching to inferior 2",
            "hit Breakpoint 1",
            "in_child",
            "[Inferior 2 (process",
            "exited with code 03]",
            "Switching to inferior 1",
            "hit Breakpoint 2",
            "in_parent (status=768)",
            "[Inferior 1 (process",
            "exited normally]",
        ],
    );
}

#[test]
fn gdb_follows_a_child_and_detaches_from_its_parent() {
    let program = build("family", &["-O0"]);
    let mut server = Server::start(&["--once", ":0", program.to_str().unwrap(), "fork"]);
    let text = gdb(
        &program,
        &format!(
            "set follow-fork-mode child\ntarget remote :{}\nbreak in_child\nbreak in_parent\n\
             continue\nbt 1\ncontinue\n",
            server.port
        ),
    );
    assert_order(
        &text,
        &[
            "Detaching after fork from parent process",
            "hit Breakpoint 1",
            "in_child",
            "exited with code 03]",
        ],
    );
    server.wait();
    // The detached parent hit none of the former traps.
    assert_eq!(server.output(), "child 3\n");
}

#[test]
fn a_child_in_its_parents_memory() {
    let program = build("family", &["-O0"]);
    for (follow, hit, end) in [
        ("parent", "in_parent (status=768)", "exited normally]"),
        ("child", "in_child", "exited with code 03]"),
    ] {
        let mut server = Server::start(&["--once", ":0", program.to_str().unwrap(), "vfork"]);
        let text = gdb(
            &program,
            &format!(
                "set follow-fork-mode {follow}\ntarget remote :{}\nbreak in_child\n\
                 break in_parent\ncatch vfork\ncontinue\ncontinue\nbt 1\ncontinue\n",
                server.port
            ),
        );
        assert_order(&text, &["Catchpoint 3 (vforked process", hit, end]);
        server.wait();
        assert_eq!(server.output(), "child 3\n");
    }
}
