#!/usr/bin/env python3
"""Measures how much longer short programs take under `unspool record`.

    tests/benches/start.py UNSPOOL [PROGRAM...]

prints the table in docs/internals/performance.md. A pair is the program alone and recorded, one
right after the other. Each program is recorded once before, so that its files are in the cache. All
runs have the highest priority, so that other load on the machine changes little. Set PAIRS for
another number of pairs.
"""

import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from futexes import priority

PAIRS = int(os.environ.get("PAIRS", "15"))
WAYS = {"`record`": [], "`record --sync`": ["--sync"]}

JAVA = """
public class Busy {
    public static void main(String[] a) {
        long end = System.nanoTime() + 300_000_000L, n = 0;
        while (System.nanoTime() < end) n++;
        System.out.println(n > 0);
    }
}
"""

PROGRAMS = {
    "true": ["true"],
    "python3": [sys.executable, "-c", "import asyncio, ctypes, json, sqlite3, ssl"],
    "node": ["node", "-e", "0"],
    "java -version": ["java", "-version"],
    "java, 0.3 s": ["java", "Busy"],
}


def seconds(words, directory):
    environment = dict(os.environ, XDG_CACHE_HOME=str(directory))
    # The kernel may take 50 ms to close the perf events of the recording before.
    time.sleep(0.1)
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    begin = time.monotonic()
    subprocess.run(words, preexec_fn=priority, cwd=directory, env=environment, check=True, **quiet)
    return time.monotonic() - begin


def main():
    unspool = str(pathlib.Path(sys.argv[1]).resolve())
    print("| | alone, ms |", " | ".join(f"{way}, ms | times" for way in WAYS), "|")
    print("|---|---|" + "---|---|" * len(WAYS))
    with tempfile.TemporaryDirectory() as directory:
        pathlib.Path(directory, "Busy.java").write_text(JAVA)
        if shutil.which("javac"):
            subprocess.run(["javac", "Busy.java"], cwd=directory, check=True)
        for name in sys.argv[2:] or PROGRAMS:
            words = PROGRAMS[name]
            if not shutil.which(words[0]) or words == ["java", "Busy"] and not shutil.which("javac"):
                print(f"skipped: {name} is not installed", file=sys.stderr)
                continue
            recorded = {way: [unspool, "record", *options, "--", *words] for way, options in WAYS.items()}
            for line in recorded.values():
                seconds(line, directory)
            alone, times, ratios = [], {way: [] for way in WAYS}, {way: [] for way in WAYS}
            for _ in range(PAIRS):
                for way, line in recorded.items():
                    alone.append(seconds(words, directory))
                    times[way].append(seconds(line, directory))
                    ratios[way].append(times[way][-1] / alone[-1])
            cells = [f"{name} | {1e3 * statistics.median(alone):.0f}"]
            for way in WAYS:
                low, middle, high = statistics.quantiles(ratios[way], n=4)
                cells.append(f"{1e3 * statistics.median(times[way]):.0f} | {middle:.2f} ({low:.2f} to {high:.2f})")
            print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
