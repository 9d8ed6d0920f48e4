"""gdb's view of a frame, in a form that does not depend on load addresses.

A frame's address is relative to a section of its file; the reader adds the section's address.
"""

import gdb

_sections = []
_objfiles = None


def read_sections():
    """Reads every section of every loaded file with its run-time addresses from `info files`."""
    global _sections, _objfiles
    objfiles = len(gdb.objfiles())
    if objfiles == _objfiles:
        return
    _objfiles = objfiles
    _sections = []
    program = gdb.current_progspace().filename
    for line in gdb.execute("info files", to_string=True).splitlines():
        words = line.split()
        # 0x00001000 - 0x00002000 is .text [in /lib/libc.so.6]
        if len(words) >= 5 and words[0].startswith("0x") and words[1] == "-" and words[3] == "is":
            module = words[6] if len(words) > 6 and words[5] == "in" else program
            _sections.append((int(words[0], 16), int(words[2], 16), words[4], module))


def _place(address):
    for start, end, name, module in _sections:
        if start <= address < end:
            return module, [name, address - start]
    return None, None


_KINDS = {
    gdb.NORMAL_FRAME: "normal",
    gdb.INLINE_FRAME: "inline",
    gdb.TAILCALL_FRAME: "tailcall",
    gdb.SIGTRAMP_FRAME: "signal",
    gdb.ARCH_FRAME: "arch",
}


def _describe(frame):
    pc = frame.pc()
    module, section_offset = _place(pc)
    source = frame.find_sal()
    symtab = source.symtab if source is not None else None
    return {
        "pc": pc,
        "kind": _KINDS.get(frame.type(), str(frame.type())),
        "function": frame.name(),
        "file": symtab.fullname() if symtab else None,
        "line": source.line if symtab else None,
        "module": module,
        "section_offset": section_offset,
    }


def stack():
    """All frames of the selected thread."""
    read_sections()
    frames = []
    frame = gdb.newest_frame()
    while frame is not None:
        frames.append(_describe(frame))
        try:
            frame = frame.older()
        except gdb.error:
            break
    thread = gdb.selected_thread()
    return {"tid": thread.ptid[1] or thread.ptid[2], "frames": frames}
