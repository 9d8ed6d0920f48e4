"""Run by gdb: prints the thread and the program counters of each frame of the trace file, as JSON.
Inlined functions and tail callers have no frame on the stack, so they are left out."""

import json

import gdb


def stack():
    pcs, frame = [], gdb.newest_frame()
    while frame:
        try:
            if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
                pcs.append(frame.pc())
        except gdb.error:
            # The outermost frame of a thread has no caller.
            break
        frame = frame.older()
    return pcs


frames = []
gdb.execute("tfind start", to_string=True)
while int(gdb.parse_and_eval("$trace_frame")) >= 0:
    tid = int(gdb.parse_and_eval("$unspool_tid"))
    time_ns = int(gdb.parse_and_eval("$unspool_time_ns"))
    frames.append({"tid": tid, "time_ns": time_ns, "pcs": stack()})
    try:
        gdb.execute("tfind", to_string=True)
    except gdb.error:
        break
print("FRAMES " + json.dumps(frames))
