"""Ground truth for a look at a running process: every thread's stack, as gdb sees it now.

Run by `gdb -batch -p PID -x`. Writes {"exit": null, "stacks": [...]} to the file named by
$UNSPOOL_TRUTH, as frames.py describes them.
"""

import json
import os
import sys

import gdb

sys.path.insert(0, os.path.dirname(__file__))
import frames

stacks = []
for thread in gdb.selected_inferior().threads():
    thread.switch()
    stacks.append(frames.stack())

with open(os.environ["UNSPOOL_TRUTH"], "w") as out:
    json.dump({"exit": None, "stacks": stacks}, out)
