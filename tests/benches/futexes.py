#!/usr/bin/env python3
"""Measures how many of a program's futex calls `unspool record --sync` records, and what that costs.

    tests/benches/futexes.py UNSPOOL [PROGRAM...]

prints the table in docs/internals/performance.md. Runs as root: bpftrace counts the futex calls in
the recorded run itself, in the kernel. Compared are waits, since the report says of each object how
often it was waited for; wake-ups are recorded by the same means. The slowdown is the median of five pairs, each the
program alone and recorded. All runs have the highest priority, so that other load on the machine
changes little.
"""

import json
import os
import pathlib
import random
import re
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PAIRS = int(os.environ.get("PAIRS", "5"))
OPTIONS = os.environ.get("OPTIONS", "--sync").split()

# Bits of the futex operations that wait, and of those that wake (linux/futex.h).
WAITS = 1 | 1 << 6 | 1 << 9 | 1 << 11 | 1 << 13
WAKES = 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 10 | 1 << 12

COUNTER = f"""
tracepoint:syscalls:sys_enter_futex {{
    $bit = (uint64)1 << (args->op & 127);
    if ($bit & {WAITS}) {{ @begun[pid] = count(); }}
    else if ($bit & {WAKES}) {{ @woken[pid] = count(); }}
}}
BEGIN {{ printf("ready\\n"); }}
"""

JAVA = """
import java.util.*; import java.util.concurrent.*;
public class Pool {
    public static void main(String[] a) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        long sum = 0;
        for (int round = 0; round < 300; round++) {
            List<Future<Long>> all = new ArrayList<>();
            for (int n = 0; n < 100; n++) {
                final int from = n;
                all.add(pool.submit(() -> { long s = 0;
                    for (int i = 0; i < 20000; i++) s += (i ^ from) % 7; return s; }));
            }
            for (Future<Long> one : all) sum += one.get();
        }
        pool.shutdown();
        System.out.println(sum);
    }
}
"""

NODE = """
const zlib = require('zlib'), crypto = require('crypto');
const block = crypto.randomBytes(1 << 16);
let left = 1500;
function next() {
    if (left-- > 0) zlib.gzip(block, next);
}
for (let n = 0; n < 4; n++) next();
"""


def priority():
    """Runs before a program is executed: its own session, which goes before all others."""
    os.setsid()
    try:
        pathlib.Path("/proc/self/autogroup").write_text("-20")
    except OSError:
        pass
    os.nice(-15)


def run(words, **options):
    return subprocess.run(words, preexec_fn=priority, **options)


class Program:
    """A program that runs to its end by itself."""

    def __init__(self, name, words):
        self.name, self.words = name, words

    def time(self, prefix, out):
        since = time.monotonic()
        run(prefix + self.words, stdout=subprocess.DEVNULL, stderr=out, check=True)
        return time.monotonic() - since


class Server(Program):
    """A server, whose clients' time is measured."""

    def __init__(self, name, words, port, client, end):
        super().__init__(name, words)
        self.port, self.client, self.end = port, client, end

    def time(self, prefix, out):
        server = subprocess.Popen(
            prefix + self.words, stdout=subprocess.DEVNULL, stderr=out, preexec_fn=priority
        )
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except OSError:
                time.sleep(0.02)
        since = time.monotonic()
        run(self.client, stdout=subprocess.DEVNULL, stderr=out, check=True)
        took = time.monotonic() - since
        subprocess.run(self.end, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        server.wait(60)
        return took


def programs(where):
    text = where / "text"
    if not text.exists():
        made = random.Random(1)
        words = [bytes(made.choices(b"abcdefghijklmnopqrstuvwxyz", k=made.randint(2, 9)))
                 for _ in range(5000)]
        with text.open("wb") as file:
            for _ in range(60):
                file.write(b" ".join(made.choices(words, k=160000)))
    (where / "Pool.java").write_text(JAVA)
    (where / "pool.js").write_text(NODE)
    findings = HERE.parent / "programs" / "findings"
    for name in ["busy"]:
        subprocess.run(["gcc", "-O1", "-g", "-pthread", f"-I{findings}", "-o", where / name,
                        findings / f"{name}.c"], check=True)
    java = ["java", "-XX:TieredStopAtLevel=1"]
    if shutil.which("javac"):
        subprocess.run(["javac", "-d", where, where / "Pool.java"], check=True)
        java += ["-cp", str(where), "Pool"]
    else:
        java += [str(where / "Pool.java")]
    text = str(text)
    port = 17379
    yield Program("busy.c", [str(where / "busy")])
    yield Program("pigz -p4", ["pigz", "-c", "-p4", "-3", text])
    yield Program("xz -T4", ["xz", "-c", "-0", "-T4", "--block-size=1MiB", text])
    yield Program("pbzip2 -p4", ["pbzip2", "-c", "-k", "-p4", "-b1", text])
    yield Program("zstd -T4", ["zstd", "-c", "-q", "-T4", "-9", text])
    yield Program("sysbench mutex", ["sysbench", "mutex", "--threads=4", "--mutex-num=64",
                                     "--mutex-locks=400000", "run"])
    yield Program("sysbench threads", ["sysbench", "threads", "--threads=8", "--events=6000",
                                       "--time=0", "run"])
    yield Server("redis-server", ["redis-server", "--port", str(port), "--save", "",
                                  "--io-threads", "2", "--daemonize", "no"], port,
                 ["redis-benchmark", "-p", str(port), "-q", "-n", "100000", "-t", "set,get"],
                 ["redis-cli", "-p", str(port), "shutdown", "nosave"])
    yield Program("java", java)
    yield Program("node", ["node", str(where / "pool.js")])


def counted(text, name, pid):
    found = re.search(rf"^@{name}\[{pid}\]: (\d+)$", text, re.M)
    return int(found.group(1)) if found else 0


def started_counter():
    """bpftrace, which counts already. Sometimes it does not come up."""
    for _ in range(5):
        counter = subprocess.Popen(["bpftrace", "-B", "none", "-e", COUNTER], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   preexec_fn=priority)
        output = ""
        until = time.monotonic() + 30
        while "ready" not in output and time.monotonic() < until:
            if select.select([counter.stdout], [], [], 1)[0]:
                more = os.read(counter.stdout.fileno(), 4096).decode()
                if not more:
                    break
                output += more
        if "ready" in output:
            return counter
        counter.kill()
        counter.wait()
    raise OSError("bpftrace counts nothing")


def coverage(program, prefix, unspool, capture):
    """The waits and wake-ups that the kernel counts, and the report of the same run."""
    counter = started_counter()
    try:
        program.time(prefix, subprocess.DEVNULL)
    finally:
        counter.send_signal(signal.SIGINT)
        text = counter.communicate(timeout=60)[0]
    report = subprocess.run([unspool, "report", "--format", "json", capture],
                            stdout=subprocess.PIPE, check=True)
    report = json.loads(report.stdout)
    pid = report["target"]["pid"]
    return counted(text, "begun", pid), counted(text, "woken", pid), report


def main():
    unspool = os.path.abspath(sys.argv[1])
    where = pathlib.Path(tempfile.gettempdir()) / "unspool-futexes"
    where.mkdir(exist_ok=True)
    os.chdir(where)
    capture = str(where / "capture.unspool")
    prefix = [unspool, "record", "-q", "-o", capture, *OPTIONS, "--"]
    print("| program | futex waits | wake-ups | calls a second | waits recorded | "
          "hits missed, as told | slowdown |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for program in programs(where):
        if sys.argv[2:] and program.name.split()[0] not in sys.argv[2:]:
            continue
        try:
            waits, wakes, report = coverage(program, prefix, unspool, capture)
            recording = report["recording"]
            known = sum(thing["waits"]["count"] for thing in report["objects"])
            ratios = []
            for _ in range(PAIRS):
                alone = program.time([], subprocess.DEVNULL)
                ratios.append(program.time(prefix, subprocess.DEVNULL) / alone)
            slowdown = ""
            if ratios:
                slowdown = (f"{statistics.median(ratios):.2f} "
                            f"({min(ratios):.2f} to {max(ratios):.2f})")
            share = 100 * known / waits if waits else 0
            rate = (waits + wakes) / (recording["duration_ns"] / 1e9)
            missed = recording["calls_missed"] + recording["dropped_events"]
            print(f"| {program.name} | {waits:,} | {wakes:,} | {rate:,.0f} | {share:.1f} % | "
                  f"{missed:,} | {slowdown} |", flush=True)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            print(f"| {program.name} | {error} |", flush=True)


if __name__ == "__main__":
    main()
