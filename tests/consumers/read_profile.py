"""Reads a profile of the Firefox Profiler and prints its totals as JSON: `read_profile.py FILE`.

Knows nothing of Unspool. Checks the rules of docs-developer/processed-profile-format.md and of the
types in src/types/profile.js, in Firefox Profiler's source: columns of a table have one length, and
each index refers to an entry. A profile that breaks one ends this with an error.
"""

import collections
import json
import sys

PARTS = {"meta", "libs", "threads", "pages", "counters"}
META = {"interval", "startTime", "product", "processType", "categories", "markerSchema", "version"}
THREAD = {"name", "pid", "tid", "processType", "isMainThread", "registerTime", "samples", "markers"}
INTERVAL = 1


def check_table(table):
    """All columns of a table have its length."""
    length = table["length"]
    for name, column in table.items():
        if isinstance(column, list):
            assert len(column) == length, f"{name} has {len(column)} entries, not {length}"
    return length


def check_index(column, length, is_optional=False):
    for index in column:
        if index is None or index == -1:
            assert is_optional, "an index is missing"
        else:
            assert 0 <= index < length, f"{index} is not one of {length} entries"


def check_stacks(thread, categories):
    strings = thread["stringArray"]
    assert len(set(strings)) == len(strings), "a string is there twice"
    funcs, frames, stacks = thread["funcTable"], thread["frameTable"], thread["stackTable"]
    check_index(funcs["name"], len(strings))
    check_table(funcs)
    check_index(frames["func"], check_table(funcs))
    check_index(frames["category"], len(categories))
    check_index(stacks["frame"], check_table(frames))
    length = check_table(stacks)
    for index, prefix in enumerate(stacks["prefix"]):
        assert prefix is None or prefix < index, "a stack comes before its caller"
    check_index(thread["samples"]["stack"], length, is_optional=True)
    causes = [data["cause"]["stack"] for data in thread["markers"]["data"] if "cause" in data]
    check_index(causes, length)


def read_thread(thread, meta):
    assert THREAD <= thread.keys(), THREAD - thread.keys()
    check_stacks(thread, meta["categories"])
    samples, markers = thread["samples"], thread["markers"]
    check_table(samples)
    check_table(markers)
    assert all(delta >= 0 for delta in samples["timeDeltas"]), "samples are not in order"
    cpu_us = 0
    for delta_ms, ran_us in zip(samples["timeDeltas"], samples["threadCPUDelta"]):
        assert 0 <= ran_us <= delta_ms * 1000 + 1, "a thread ran longer than time passed"
        cpu_us += ran_us
    strings = thread["stringArray"]
    check_index(markers["name"], len(strings))
    check_index(markers["category"], len(meta["categories"]))
    schemas = {schema["name"]: schema for schema in meta["markerSchema"]}
    waits, events, objects = collections.Counter(), collections.Counter(), set()
    for index, data in enumerate(markers["data"]):
        schema = schemas[data["type"]]
        values = {}
        for field in schema["fields"]:
            assert field["format"] == "unique-string", field
            values[field["key"]] = strings[data[field["key"]]]
        name = strings[markers["name"][index]]
        start, end = markers["startTime"][index], markers["endTime"][index]
        if markers["phase"][index] == INTERVAL:
            assert end >= start, "a marker ends before it begins"
            # The format counts milliseconds.
            waits[values["waiting_for"]] += round(end * 1e6) - round(start * 1e6)
            objects.add(name)
        else:
            events[f"{data['type']}: {name}"] += 1
    return {
        "name": thread["name"],
        "waits": waits,
        "cpu_us": cpu_us,
        "events": events,
        "objects": sorted(objects),
    }


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        profile = json.load(file)
    meta = profile["meta"]
    assert PARTS <= profile.keys(), PARTS - profile.keys()
    assert META <= meta.keys(), META - meta.keys()
    assert isinstance(meta["preprocessedProfileVersion"], int)
    check_index(meta["initialVisibleThreads"], len(profile["threads"]))
    threads = {thread["tid"]: read_thread(thread, meta) for thread in profile["threads"]}
    assert len(threads) == len(profile["threads"]), "two threads have one id"
    main = [thread["pid"] for thread in profile["threads"] if thread["isMainThread"]]
    pids = {thread["pid"] for thread in profile["threads"]}
    assert sorted(main) == sorted(pids), "a process has not exactly one main thread"
    json.dump({"threads": threads, "visible": meta["initialVisibleThreads"]}, sys.stdout)


main()
