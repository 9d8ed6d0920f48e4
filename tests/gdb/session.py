"""A session of real gdb with our stub; every step is checked.

Run it with `gdb -batch -x session.py PROGRAM`. $SESSION selects a session below, and $STUB is the
argument of `target extended-remote`. Prints `ok STEP` for each step and `session done` at the end. A
failed step prints the expectation and gdb's output, and ends gdb with an error.
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


events = []
gdb.events.stop.connect(events.append)
gdb.events.exited.connect(events.append)


def go(command):
    """Resumes the program with this command. Returns how and where it stopped, as text. (gdb does not
    return stops of a remote program through `to_string`.)"""
    events.clear()
    text = do(command)
    for event in events:
        if isinstance(event, gdb.BreakpointEvent):
            what = [
                f"watchpoint {b.expression}" if b.type != gdb.BP_BREAKPOINT else f"breakpoint {b.location}"
                for b in event.breakpoints
            ]
            text += "stopped by " + ", ".join(what) + "\n"
        elif isinstance(event, gdb.SignalEvent):
            text += f"stopped by signal {event.stop_signal}\n"
        elif isinstance(event, gdb.ExitedEvent):
            text += f"exited with {getattr(event, 'exit_code', None)}\n"
    if gdb.selected_thread() is not None:
        text += do("frame")
    return text


def frame_line():
    frame = gdb.selected_frame()
    return frame.name(), frame.find_sal().line


def walk():
    """pool at -O0: stop, inspect, step, watch, continue to the end."""
    connect()
    do("break main")
    expect("break main", go("continue"), r"by breakpoint main", r"#0 +main \(\)")
    do("delete")

    # Watch a variable by single-stepping, across the creation of a thread.
    do("set can-use-hw-watchpoints 0")
    expect("watch", do("watch used"), r"^Watchpoint \d+: used")
    expect("watch hit", go("continue"), r"by watchpoint used", r"#0 .*launch \(\)")
    expect("watched value", do("print used"), r"= 1$")
    expect("watch bt", do("bt"), r"launch \(\).*start_pool \(count=3\).*main \(\)")
    do("delete")

    # One thread at a time from here on: main creates another worker and waits while it runs.
    do("set scheduler-locking on")
    do("break launch")
    expect("main alone", go("continue"), r"by breakpoint launch")
    do("delete")
    go("finish")
    max(gdb.selected_inferior().threads(), key=lambda thread: thread.num).switch()
    do("break worker")
    text = go("continue")
    expect("break worker", text, r"by breakpoint worker", r"#0 +worker \(argument=0x")
    threads = do("info threads")
    expect("info threads", threads, r"\* *\d+ .*worker \(argument=", r"^ +1 +Thread \d+\.\d+ ")
    stacks = do("thread apply all bt")
    expect(
        "thread apply all bt",
        stacks,
        r"worker \(argument=.*start_thread.*clone3?",
        r"Thread 1 .*main \(\)",
    )
    do("delete")

    number = gdb.selected_thread().num
    first = frame_line()[1]
    go("next")
    go("next")
    name, line = frame_line()
    expect("next", f"{name} {line > first}", r"worker True")
    before = gdb.selected_frame().pc()
    go("stepi")
    expect("stepi", str(0 < gdb.selected_frame().pc() - before < 16), "True")
    expect("same thread", str(gdb.selected_thread().num == number), "True")

    do("break replace")
    do("set scheduler-locking off")
    expect("break replace", go("continue"), r"by breakpoint replace", r"#0 +replace \(\)")
    do("break launch")
    expect("break launch", go("continue"), r"by breakpoint launch", r"#0 +launch \(\)")
    expect("step", go("step"), r"^#0 +launch|^\d+")
    expect("finish", go("finish"), r"replace \(\)")
    expect("memory", do("print jobs[7].to - jobs[7].from"), r"= 1000")
    do("set var jobs[7].to = jobs[7].to")
    do("delete")
    expect("exit", go("continue"), r"exited with 0")


def breakpoints():
    """Many threads through one breakpoint: none may pass it, none may be lost."""
    connect()
    do("break main")
    go("continue")
    do("delete")
    count = int(os.environ["HITS"])
    do("break " + os.environ["FUNCTION"])
    for hit in range(count):
        text = go("continue")
        if "stopped by breakpoint" not in text:
            expect(f"hit {hit + 1} of {count}", text, "stopped by breakpoint")
    expect("all hits, then the end", go("continue"), r"exited with 0")


keys = []


def interrupt_soon(_):
    """Ctrl-C for gdb after it has resumed the program; repeated in case gdb was not waiting yet."""
    for delay in (0.3, 20, 60, 120):
        keys.append(threading.Timer(delay, lambda: os.kill(os.getpid(), signal.SIGINT)))
        keys[-1].start()


def no_more_keys(_):
    while keys:
        keys.pop().cancel()


def interrupt():
    """A program that sleeps: Ctrl-C stops it, continue resumes it, repeatedly."""
    connect()
    do("break sleep")
    expect("about to sleep", go("continue"), r"by breakpoint sleep")
    do("delete")
    gdb.events.cont.connect(interrupt_soon)
    gdb.events.stop.connect(no_more_keys)
    for time in ("first", "second"):
        expect(f"{time} Ctrl-C", go("continue"), r"stopped by signal SIGINT")
        expect(f"{time} bt", do("bt"), r"nanosleep|sleep")
    gdb.events.cont.disconnect(interrupt_soon)
    do("kill")
    expect("kill", do("info inferiors"), r"\* 1 +<null>")


def detach():
    """Breakpoints are inserted, then gdb disappears: the program runs to its end by itself."""
    connect()
    do("break launch")
    expect("break launch", go("continue"), r"by breakpoint launch")
    go("continue")
    do("detach")
    expect("detach", do("info inferiors"), r"\* 1 +<null>")


def extended():
    """Kills the program and runs it again, to the end and once more."""
    connect()
    do("break main")
    expect("first run", go("continue"), r"by breakpoint main")
    do("kill")
    expect("killed", do("info inferiors"), r"\* 1 +<null>")
    expect("second run", go("run"), r"by breakpoint main")
    expect("to the end", go("continue"), r"exited with 0")
    expect("third run", go("run"), r"by breakpoint main")
    do("delete")
    do("break worker")
    expect("threads again", go("continue"), r"by breakpoint worker")
    do("kill")


def attach():
    """--multi: attaches to a running process, inspects it, detaches."""
    connect()
    pid = os.environ["TARGET_PID"]
    do("attach " + pid)
    expect("attach", do("info inferiors"), rf"process {pid}")
    expect("bt", do("bt"), r"nanosleep|sleep")
    do("detach")
    expect("detach", do("info inferiors"), r"\* 1 +<null>")


try:
    globals()[os.environ["SESSION"]]()
except gdb.error as error:
    print(f"FAILED: gdb: {error}")
    gdb.execute("quit 1")
print("session done")
