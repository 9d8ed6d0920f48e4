"""Ground truth for thread creation, from gdb.

A script for `gdb -batch -x` after the program is set up. It runs the program to its end, or
continues it if a remote server has stopped it. At every hit of `pthread_create` it records the thread
and every frame of the backtrace. It writes one JSON document to the file $UNSPOOL_TRUTH:
{"exit": N|null, "stacks": [...]}, as described in frames.py.
"""

import json
import os
import sys

import gdb

sys.path.insert(0, os.path.dirname(__file__))
import frames

stacks = []


class Creation(gdb.Breakpoint):
    def stop(self):
        stacks.append(frames.stack())
        return False


exit_code = []
gdb.events.exited.connect(lambda event: exit_code.append(getattr(event, "exit_code", None)))
Creation("pthread_create")
gdb.execute("continue" if gdb.selected_thread() is not None else "run")

with open(os.environ["UNSPOOL_TRUTH"], "w") as out:
    json.dump({"exit": exit_code[0] if exit_code else None, "stacks": stacks}, out)
