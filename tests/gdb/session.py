"""A session of real gdb with our stub, every step checked.

Run by `gdb -batch -x session.py PROGRAM` with $SESSION (which session below) and $STUB (the argument
of `target extended-remote`). Prints `ok STEP` per step and `session done` at the end; a step that
fails prints what was expected and what gdb said, and ends gdb with an error.
"""

import os
import re
import signal
import threading

import gdb


def do(command):
    return gdb.execute(command, to_string=True)


def expect(step, text, *patterns):
    for pattern in patterns:
        if not re.search(pattern, text, re.MULTILINE | re.DOTALL):
            print(f"FAILED {step}: expected /{pattern}/, gdb said:\n{text}")
            gdb.execute("quit 1")
    print(f"ok {step}")


def connect():
    return do("target extended-remote " + os.environ["STUB"])


def exit_code():
    return str(gdb.parse_and_eval("$_exitcode"))


def frame_line():
    frame = gdb.selected_frame()
    return frame.name(), frame.find_sal().line


def walk():
    """pool at -O0: stop, look around, step, watch, go on to the end."""
    connect()
    do("break main")
    expect("break main", do("continue"), r"Breakpoint 1, main \(\)")
    do("delete 1")

    # Watching a variable by single-stepping, across the creation of a thread.
    do("set can-use-hw-watchpoints 0")
    expect("watch", do("watch used"), r"^Watchpoint \d+: used")
    expect("watch hit", do("continue"), r"Old value = 0\s+New value = 1")
    expect("watch bt", do("bt"), r"launch \(\).*start_pool \(count=3\).*main \(\)")
    do("delete")

    do("break worker")
    text = do("continue")
    expect("break worker", text, r"hit Breakpoint \d+, worker \(argument=0x")
    threads = do("info threads")
    expect("info threads", threads, r"\* *\d+ .*worker \(argument=", r"\n? *1 +Thread ")
    stacks = do("thread apply all bt")
    expect(
        "thread apply all bt",
        stacks,
        r"worker \(argument=.*start_thread.*clone3?",
        r"Thread 1 .*main \(\)",
    )
    do("delete")

    # Steps stay in their thread, whatever the others do.
    number = gdb.selected_thread().num
    name, first = frame_line()
    do("next")
    do("next")
    name, line = frame_line()
    expect("next", f"{name} {line > first}", r"worker True")
    do("stepi")
    do("stepi")
    expect("same thread", str(gdb.selected_thread().num == number), "True")
    expect("step", do("info registers rip"), r"worker")

    do("break replace")
    expect("break replace", do("continue"), r"hit Breakpoint \d+, replace \(\)")
    do("thread 1")
    do("break launch")
    expect("break launch", do("continue"), r"hit Breakpoint \d+, launch \(\)")
    expect("finish", do("finish"), r"Run till exit from #0 +launch \(\).*replace \(\)")
    expect("step over", do("step"), r"return|\d+")
    expect("memory", do("print jobs[7].to - jobs[7].from"), r"= 1000")
    do("set var used = 8")
    expect("call", do("print (int)used"), r"= 8")
    do("delete")
    expect("exit", do("continue"), r"exited normally")
    expect("exit code", exit_code(), "^0$")


def breakpoints():
    """Many threads through one breakpoint: none may slip past it, none may be lost."""
    connect()
    do("break main")
    do("continue")
    do("delete")
    count = int(os.environ["HITS"])
    do("break " + os.environ["FUNCTION"])
    for hit in range(count):
        text = do("continue")
        if "hit Breakpoint" not in text:
            expect(f"hit {hit + 1} of {count}", text, "hit Breakpoint")
    expect("all hits, then the end", do("continue"), r"exited normally")
    print("ok breakpoints")


def interrupt():
    """A program that sleeps: Ctrl-C stops it, continue goes on, and again."""
    connect()
    for time in ("first", "second"):
        threading.Timer(0.4, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        expect(f"{time} Ctrl-C", do("continue"), r"received signal SIGINT|Thread .* stopped")
        expect(f"{time} bt", do("bt"), r"nanosleep|sleep")
    expect("kill", do("kill"), r"killed")


def detach():
    """Breakpoints set, then gone: the program runs to its end by itself."""
    connect()
    do("break launch")
    expect("break launch", do("continue"), r"hit Breakpoint \d+, launch")
    do("continue")
    expect("detach", do("detach"), r"[Dd]etach")


def extended():
    """Kill and run again, to the end and once more."""
    connect()
    do("break main")
    expect("first run", do("continue"), r"Breakpoint 1, main \(\)")
    do("kill")
    expect("killed", do("info inferiors"), r"\* 1 +<null>")
    expect("second run", do("run"), r"Breakpoint 1, main \(\)")
    expect("to the end", do("continue"), r"exited normally")
    expect("third run", do("run"), r"Breakpoint 1, main \(\)")
    do("delete")
    do("break worker")
    expect("threads again", do("continue"), r"hit Breakpoint \d+, worker")
    do("kill")


def attach():
    """--multi: attach to a running process, look at it, let it go."""
    connect()
    pid = os.environ["TARGET_PID"]
    do("attach " + pid)
    expect("attach", do("info inferiors"), rf"process {pid}")
    expect("bt", do("bt"), r"nanosleep|sleep")
    expect("detach", do("detach"), rf"[Dd]etach")


try:
    globals()[os.environ["SESSION"]]()
except gdb.error as error:
    print(f"FAILED: gdb: {error}")
    gdb.execute("quit 1")
print("session done")
