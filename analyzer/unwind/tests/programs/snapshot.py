# A gdb script: steps through a program from main, over calls of functions without a breakpoint.
# At every stop it writes a snapshot (registers, stack, modules) and gdb's frames.
import gdb
import os

out = open(os.environ["SNAPSHOT_OUT"], "w")
limit = int(os.environ["SNAPSHOT_STOPS"])
stack_bytes = 4096 * 24
# Stack size in bytes, even if gdb shows fewer frames.
# The function after which gdb's frames are ignored.
last = os.environ.get("SNAPSHOT_LAST")
least_bytes = int(os.environ.get("SNAPSHOT_LEAST", "512"))
gdb.execute("set pagination off")
gdb.execute("set confirm off")
gdb.execute("set backtrace past-main on")
gdb.execute("set width 0")
for name in os.environ["SNAPSHOT_FUNCTIONS"].split(","):
    gdb.execute("break *%s" % name, to_string=True)
gdb.execute("handle SIGUSR1 nostop noprint pass", to_string=True)
gdb.execute(os.environ["SNAPSHOT_START"], to_string=True)
inferior = gdb.selected_inferior()


def frames():
    frame = gdb.newest_frame()
    found = []
    while frame is not None and len(found) < 64:
        # gdb's frames beyond the outermost one.
        if frame.pc() == 0:
            break
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            found.append(frame)
        if last and frame.name() == last:
            break
        try:
            frame = frame.older()
        except gdb.error:
            break
    return found


def modules():
    text = gdb.execute("info sharedlibrary", to_string=True)
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 4 and words[0].startswith("0x"):
            yield words[-1], int(words[0], 16)
    text = gdb.execute("info files", to_string=True)
    for line in text.splitlines():
        words = line.split()
        if len(words) == 5 and words[4] == ".text":
            yield gdb.current_progspace().filename, int(words[0], 16)
            break


stops = 0
while stops < limit and inferior.pid != 0:
    newest = gdb.newest_frame()
    sp = int(newest.read_register("sp")) & 0xFFFFFFFFFFFFFFFF
    out.write("snapshot %d\n" % stops)
    for path, address in modules():
        out.write("module %#x %s\n" % (address, path))
    for register in newest.architecture().registers("general"):
        value = newest.read_register(register.name)
        try:
            value = int(value) & 0xFFFFFFFFFFFFFFFF
        except gdb.error:
            continue
        out.write("register %s %#x\n" % (register.name, value))
    known = frames()
    outermost = int(known[-1].read_register("sp")) & 0xFFFFFFFFFFFFFFFF
    size = max(least_bytes, min(outermost - sp + 512, stack_bytes))
    while size >= 64:
        try:
            data = bytes(inferior.read_memory(sp, size))
            out.write("memory %#x %s\n" % (sp, data.hex()))
            break
        except gdb.error:
            size //= 2
    # The page of the signal trampoline, which is in no file.
    for frame in known[:2]:
        if frame.name() is None:
            start = frame.pc() & ~15
            code = bytes(inferior.read_memory(start, 32))
            out.write("memory %#x %s\n" % (start, code.hex()))
    for frame in known:
        name = frame.name() or "?"
        out.write("frame %#x %s\n" % (frame.pc(), name.replace(" ", "_")))
    stops += 1
    try:
        gdb.execute("nexti", to_string=True)
    except gdb.error:
        break
out.close()
try:
    gdb.execute("kill")
except gdb.error:
    pass
gdb.execute("quit")
