"""Ground truth for thread creation, taken by gdb itself.

Run by `gdb -batch -x` after the program is set up. Runs (or continues, when the program already
stands at a remote server) until the program ends; at every hit of `pthread_create` it notes the
thread and every frame of the backtrace, to the outermost. Writes one JSON document to the file
named by $UNSPOOL_TRUTH:

    {"exit": N|null, "hits": [{"tid": N, "frames": [{"pc", "kind", "function", "file", "line",
      "module", "section_offset": [name, N]}]}]}

A frame's place is given relative to a section of its file, so that it does not depend on where the
file was loaded: the reader adds the section's address.
"""

import json
import os

import gdb

hits = []
sections = []
known_objfiles = None


def read_sections():
    """`info files` lists every section of every loaded file with its run-time addresses."""
    global sections, known_objfiles
    objfiles = len(gdb.objfiles())
    if objfiles == known_objfiles:
        return
    known_objfiles = objfiles
    sections = []
    program = gdb.current_progspace().filename
    for line in gdb.execute("info files", to_string=True).splitlines():
        words = line.split()
        # 0x00001000 - 0x00002000 is .text [in /lib/libc.so.6]
        if len(words) >= 5 and words[0].startswith("0x") and words[1] == "-" and words[3] == "is":
            module = words[6] if len(words) > 6 and words[5] == "in" else program
            sections.append((int(words[0], 16), int(words[2], 16), words[4], module))


def place(address):
    for start, end, name, module in sections:
        if start <= address < end:
            return module, [name, address - start]
    return None, None


KINDS = {
    gdb.NORMAL_FRAME: "normal",
    gdb.INLINE_FRAME: "inline",
    gdb.TAILCALL_FRAME: "tailcall",
    gdb.SIGTRAMP_FRAME: "signal",
    gdb.ARCH_FRAME: "arch",
}


def describe(frame):
    pc = frame.pc()
    module, section_offset = place(pc)
    source = frame.find_sal()
    symtab = source.symtab if source is not None else None
    return {
        "pc": pc,
        "kind": KINDS.get(frame.type(), str(frame.type())),
        "function": frame.name(),
        "file": symtab.fullname() if symtab else None,
        "line": source.line if symtab else None,
        "module": module,
        "section_offset": section_offset,
    }


class Creation(gdb.Breakpoint):
    def stop(self):
        read_sections()
        frames = []
        frame = gdb.newest_frame()
        while frame is not None:
            frames.append(describe(frame))
            try:
                frame = frame.older()
            except gdb.error:
                break
        thread = gdb.selected_thread()
        hits.append({"tid": thread.ptid[1] or thread.ptid[2], "frames": frames})
        return False


exit_code = []
gdb.events.exited.connect(lambda event: exit_code.append(getattr(event, "exit_code", None)))
Creation("pthread_create")
gdb.execute("continue" if gdb.selected_thread() is not None else "run")

with open(os.environ["UNSPOOL_TRUTH"], "w") as out:
    json.dump({"exit": exit_code[0] if exit_code else None, "hits": hits}, out)
