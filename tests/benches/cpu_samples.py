#!/usr/bin/env python3
"""Compares `unspool record --cpu` with perf, samply and gperftools.

    tests/benches/cpu_samples.py UNSPOOL

prints the tables in docs/internals/performance.md: the share of its time for which a busy thread is
interrupted, and the share of stacks that reach the start of their thread, in stripped programs of
Debian. All take 1,000 samples a second. Set ROUNDS for another number of rounds. Peers that are not
installed are left out. samply needs kernel.perf_event_paranoid 1 or less.
"""

import bisect
import functools
import gzip
import json
import os
import pathlib
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

ROUNDS = int(os.environ.get("ROUNDS", "9"))
HZ = 997
GPERFTOOLS = "/usr/lib/x86_64-linux-gnu/libprofiler.so.0"

# Reads the processor's clock for half a second. Prints how many millionths of its time it was
# interrupted. Long interruptions do not count, because then other programs ran. The argument is the
# size of the stack below it.
BUSY = """
#include <alloca.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <x86intrin.h>

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static double ticks_by_ns(void)
{
	uint64_t from = now_ns(), ticks = __rdtsc();
	while (now_ns() - from < 50000000)
		;
	return (double)(__rdtsc() - ticks) / (now_ns() - from);
}

__attribute__((noinline)) static int work(int bytes)
{
	volatile char *stack = alloca(bytes + 16);
	for (int i = 0; i < bytes; i += 64)
		stack[i] = 1;
	double rate = ticks_by_ns();
	uint64_t least = 300 * rate, most = 100000 * rate, ran = 0, interrupted = 0;
	uint64_t last = __rdtsc();
	while (ran < 500000000 * rate) {
		uint64_t now = __rdtsc(), gap = now - last;
		last = now;
		if (gap > most)
			continue;
		ran += gap;
		if (gap > least)
			interrupted += gap;
	}
	fprintf(stderr, "%.0f\\n", 1e6 * interrupted / ran);
	return stack[0];
}

int main(int argc, char **argv)
{
	work(atoi(argv[1]));
}
"""

PYTHON = """
import threading
def work():
    table = {}
    for number in range(1500000):
        table[str(number)] = sorted([number, -number])
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""

SQL = """
create table t(a, b);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 400000)
insert into t select i, hex(randomblob(8)) from n;
create index u on t(b);
select count(*) from t x join t y on x.b = y.b where x.a % 3 = 0;
"""


def record(kind, output, hz=HZ):
    """The command that samples what follows it, and its variables."""
    perf = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(hz), "-o", output]
    return {
        "unspool": ([UNSPOOL, "record", "-q", f"--cpu={hz}", "-o", output, "--"], {}),
        "perf, DWARF": ([*perf, "--call-graph", "dwarf,32768", "--"], {}),
        "perf, frame pointers": ([*perf, "--call-graph", "fp", "--"], {}),
        "samply": (["samply", "record", "-s", "-n", "-r", str(hz), "-o", output, "--"], {}),
        "gperftools": ([], {
            "LD_PRELOAD": GPERFTOOLS, "CPUPROFILE": output, "CPUPROFILE_FREQUENCY": str(hz),
        }),
    }[kind]


def run(words, directory, variables=None):
    environment = dict(os.environ, **(variables or {}))
    ended = subprocess.run(
        words, cwd=directory, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )
    if ended.returncode:
        sys.exit(f"{' '.join(words)}: exit code {ended.returncode}: {ended.stderr}")
    return ended.stderr


def interrupted(words, directory, variables=None):
    """The percentage that the busy program prints, maybe beside a recorder's messages."""
    lines = run(words, directory, variables).splitlines()
    return next(int(line) for line in lines if line.isdigit()) / 1e4


def print_costs(peers, directory):
    pathlib.Path(directory, "busy.c").write_text(BUSY)
    subprocess.run(["gcc", "-O1", "-o", "busy", "busy.c"], cwd=directory, check=True)
    ways = {"alone": None, "unspool, 199 Hz": ("unspool", 199)}
    ways |= {kind: (kind, HZ) for kind in peers}
    sizes = ("0", "57000")
    shares = {way: {size: [] for size in sizes} for way in ways}
    for _ in range(ROUNDS):
        for way, recorder in ways.items():
            words, variables = [], {}
            if recorder:
                words, variables = record(recorder[0], os.path.join(directory, recorder[0]), recorder[1])
            for size in sizes:
                share = interrupted([*words, "./busy", size], directory, variables)
                shares[way][size].append(share)
    print("| | small stack | 56 KiB of stack |\n|---|---|---|")
    for way in ways:
        cells = []
        for size in sizes:
            low, middle, high = statistics.quantiles(shares[way][size], n=4)
            cells.append(f"{middle:.2f} % ({low:.2f} to {high:.2f})")
        print("|", way, "|", " | ".join(cells), "|", flush=True)


def tool(*words):
    return subprocess.run(words, capture_output=True, text=True).stdout


@functools.cache
def segments(path):
    """The offset, address, physical address and size of each part of an ELF file."""
    lines = [line.split() for line in tool("readelf", "-lW", path).splitlines()]
    return [[int(word, 16) for word in words[1:5]] for words in lines if words[:1] == ["LOAD"]]


@functools.cache
def thread_starts(path):
    """The address ranges of a program's first function, and of the C library's that start threads.
    The latter need the library's debug symbols."""
    if not os.path.exists(path):
        return []
    header = tool("readelf", "-hnW", path)
    ranges = []
    if "libc.so" not in path and "ld-linux" not in path:
        entry = int(re.search(r"Entry point address:\s+(\S+)", header)[1], 16)
        ranges.append((entry, entry + 64))
    build_id = re.search(r"Build ID: (\w\w)(\w+)", header)
    debug = f"/usr/lib/debug/.build-id/{build_id[1]}/{build_id[2]}.debug" if build_id else ""
    for line in tool("readelf", "-sW", debug).splitlines() if os.path.exists(debug) else []:
        words = line.split()
        if len(words) == 8 and words[7] in ("clone3", "__clone3", "clone", "__clone", "_start"):
            ranges.append((int(words[1], 16), int(words[1], 16) + max(int(words[2]), 64)))
    return ranges


def begins_thread(path, address):
    """True for an address in a function with which threads begin."""
    return any(low <= address < high for low, high in thread_starts(path))


def begins_thread_at(path, offset):
    """The same for the byte at an offset of the file."""
    for start, address, _, size in segments(path):
        if start <= offset < start + size:
            return begins_thread(path, offset - start + address)
    return False


class Maps:
    """The files that a process has mapped."""

    def __init__(self):
        self.maps = []

    def add(self, start, size, offset, path):
        bisect.insort(self.maps, (start, size, offset, path))

    def begins_thread(self, pc):
        at = bisect.bisect(self.maps, (pc, 1 << 64)) - 1
        if at < 0:
            return False
        start, size, offset, path = self.maps[at]
        if pc >= start + size:
            return False
        return begins_thread_at(path, pc - start + offset)


def unspool_stacks(output):
    text = subprocess.run(
        [UNSPOOL, "report", "--format", "json", output], check=True, capture_output=True, text=True
    ).stdout
    profile = json.loads(text)["profile"]
    for sample in profile["samples"]:
        stack = profile["stacks"][sample["stack"]]
        frame = stack["frames"][-1] if stack["frames"] else None
        yield frame is not None and begins_thread(frame["module"], frame["svma"])


def perf_stacks(output):
    text = subprocess.run(
        ["perf", "script", "-i", output, "-F", "event,ip,dso", "--no-inline"],
        check=True, capture_output=True, text=True, errors="replace",
    ).stdout
    # Each sample begins with its event. Then perf prints offsets in files, innermost first.
    for sample in re.split(r"^cpu-clock:.*$", text, flags=re.MULTILINE)[1:]:
        frames = re.findall(r"^\s+([0-9a-f]+) \((.*)\)$", sample, flags=re.MULTILINE)
        offset, path = frames[-1] if frames else ("0", "")
        yield begins_thread_at(path, int(offset, 16))


def samply_stacks(output):
    opened = gzip.open if pathlib.Path(output).read_bytes()[:2] == b"\x1f\x8b" else open
    with opened(output, "rt") as file:
        profile = json.load(file)
    libs = [lib["path"] for lib in profile["libs"]]
    for thread in profile["threads"]:
        stacks, frames = thread["stackTable"], thread["frameTable"]
        funcs, resources = thread["funcTable"], thread["resourceTable"]
        for stack in thread["samples"]["stack"]:
            if stack is None:
                yield False
                continue
            while stacks["prefix"][stack] is not None:
                stack = stacks["prefix"][stack]
            frame = stacks["frame"][stack]
            resource = funcs["resource"][frames["func"][frame]]
            lib = resources["lib"][resource] if resource >= 0 else None
            yield lib is not None and begins_thread(libs[lib], frames["address"][frame])


def gperftools_stacks(output):
    data = pathlib.Path(output).read_bytes()
    word = lambda at: struct.unpack_from("<Q", data, at * 8)[0]
    at, records = 2 + word(1), []
    while True:
        count, depth = word(at), word(at + 1)
        pcs = [word(at + 2 + i) for i in range(depth)]
        at += 2 + depth
        if count == 0:
            break
        records.append((count, pcs[-1]))
    maps = Maps()
    for line in data[at * 8 :].decode(errors="replace").splitlines():
        words = line.split()
        if len(words) >= 6 and "x" in words[1]:
            start, end = (int(part, 16) for part in words[0].split("-"))
            maps.add(start, end - start, int(words[2], 16), words[5])
    for count, pc in records:
        for _ in range(count):
            yield maps.begins_thread(pc - 1)


STACKS = {
    "unspool": unspool_stacks,
    "perf, DWARF": perf_stacks,
    "perf, frame pointers": perf_stacks,
    "samply": samply_stacks,
    "gperftools": gperftools_stacks,
}


def print_stacks(peers, directory):
    pathlib.Path(directory, "work.py").write_text(PYTHON)
    pathlib.Path(directory, "work.sql").write_text(SQL)
    xz = shutil.which("xz")
    with open(pathlib.Path(directory, "data"), "wb") as file:
        for path in (shutil.which("gdb"), shutil.which("python3"), shutil.which("perf")):
            file.write(pathlib.Path(path).resolve().read_bytes())
    programs = {
        "xz -T2": [xz, "-T2", "-k", "-f", "-3", "data"],
        "python3, three threads": [shutil.which("python3"), "work.py"],
        "sqlite3": [shutil.which("sqlite3"), ":memory:", ".read work.sql"],
    }
    print("| |", " | ".join(programs), "|\n|---|" + "---|" * len(programs))
    for kind in peers:
        cells = []
        for name, words in programs.items():
            output = os.path.join(directory, kind)
            before, variables = record(kind, output)
            run([*before, *words], directory, variables)
            size = pathlib.Path(output).stat().st_size / 1e6
            complete = list(STACKS[kind](output))
            share = 100 * sum(complete) / len(complete)
            cells.append(f"{share:.2f} % of {len(complete):,}, {size:.1f} MB")
        print("|", kind, "|", " | ".join(cells), "|", flush=True)


def main():
    installed = {
        "unspool": True,
        "perf, DWARF": shutil.which("perf"),
        "perf, frame pointers": shutil.which("perf"),
        "samply": shutil.which("samply"),
        "gperftools": os.path.exists(GPERFTOOLS),
    }
    peers = [kind for kind, there in installed.items() if there]
    for kind in installed:
        if kind not in peers:
            print(f"left out: {kind} is not installed", file=sys.stderr)
    with tempfile.TemporaryDirectory() as directory:
        print_costs(peers, directory)
        print()
        print_stacks(peers, directory)


UNSPOOL = str(pathlib.Path(sys.argv[1]).resolve())
main()
