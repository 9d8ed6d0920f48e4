"""Reads a trace back and prints its totals as JSON: `read_trace.py perfetto|chrome FILE`.

Knows nothing of Unspool. Perfetto's traces are decoded by the schema of Perfetto's own package, and
thread states follow the rules of its trace processor. Chrome's traces are read by the JSON decoder.
A trace that breaks a rule of its format ends this with an error.
"""

import collections
import json
import sys


def new_thread():
    return {
        "name": None,
        "pid": None,
        "waits": collections.Counter(),
        "states": collections.Counter(),
        "samples": collections.Counter(),
        "while_running": 0,
    }


def has_unknown(message):
    """True if a message, or one inside it, has a field that the schema does not have."""
    from google.protobuf import unknown_fields

    if len(unknown_fields.UnknownFieldSet(message)):
        return True
    for field, value in message.ListFields():
        if field.message_type is not None:
            inner = value if hasattr(value, "__len__") else [value]
            if any(has_unknown(one) for one in inner):
                return True
    return False


def perfetto(path):
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

    trace = schema.Trace()
    with open(path, "rb") as file:
        trace.ParseFromString(file.read())
    threads = collections.defaultdict(new_thread)
    tracks, processes, counters, findings = {}, {}, [], []
    events, ftrace, samples = [], [], []
    interned = collections.defaultdict(dict)
    for packet in trace.packet:
        assert not has_unknown(packet), "a field that the schema does not have"
        for field, entries in packet.interned_data.ListFields():
            for entry in entries:
                assert entry.iid and entry.iid not in interned[field.name], "a number is not new"
                interned[field.name][entry.iid] = entry
        if packet.HasField("perf_sample"):
            samples.append((packet.timestamp, packet.perf_sample))
        elif packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in tracks, "two tracks have one id"
            tracks[track.uuid] = track
            if track.HasField("thread"):
                threads[track.thread.tid]["name"] = track.thread.thread_name
                threads[track.thread.tid]["pid"] = track.thread.pid
            if track.HasField("process"):
                assert track.process.pid not in processes, "two processes have one id"
                processes[track.process.pid] = track.process.process_name
        elif packet.HasField("track_event"):
            assert packet.trusted_packet_sequence_id, "an event outside a sequence"
            events.append((packet.timestamp, packet.track_event))
        elif packet.HasField("ftrace_events"):
            for event in packet.ftrace_events.event:
                ftrace.append((event.timestamp, packet.ftrace_events.cpu, event))
    starts, flows = {}, []
    stacks = collections.defaultdict(list)
    kinds = schema.TrackEvent
    for now, event in sorted(events, key=lambda event: event[0]):
        track = tracks[event.track_uuid]
        tid = track.thread.tid
        stack = stacks[event.track_uuid]
        if event.type == kinds.TYPE_SLICE_BEGIN:
            arguments = {one.name: one.string_value for one in event.debug_annotations}
            stack.append((now, event.name, arguments))
        elif event.type == kinds.TYPE_SLICE_END:
            began, _, arguments = stack.pop()
            threads[tid]["waits"][arguments["waiting_for"]] += now - began
        elif event.type == kinds.TYPE_COUNTER:
            counters.append(event.double_counter_value)
        elif event.type == kinds.TYPE_INSTANT and track.name == "findings":
            findings.append(event.name)
        for flow in event.flow_ids:
            assert flow not in starts, "a flow begins twice"
            starts[flow] = tid
        for flow in event.terminating_flow_ids:
            flows.append([starts.pop(flow), tid])
    assert not starts, "a flow ends nowhere"
    assert not any(stacks.values()), "a slice does not end"
    add_samples(threads, samples, interned, states(threads, ftrace))
    wakes = {
        (event.pid, event.sched_waking.pid)
        for _, _, event in ftrace
        if event.HasField("sched_waking")
    }
    return threads, processes, flows, wakes, counters, findings


def add_samples(threads, samples, interned, running):
    """CPU samples by stack, as the trace processor reads them: the outermost function first."""
    for now, sample in samples:
        names = []
        for frame in interned["callstacks"][sample.callstack_iid].frame_ids:
            frame = interned["frames"][frame]
            mapping = interned["mappings"][frame.mapping_id]
            assert mapping.start <= mapping.end, "the trace processor ends at such a range"
            assert all(path in interned["mapping_paths"] for path in mapping.path_string_ids)
            assert not mapping.build_id or mapping.build_id in interned["build_ids"]
            names.append(interned["function_names"][frame.function_name_id].str.decode())
        assert names, "an empty stack"
        thread = threads[sample.tid]
        assert thread["pid"] == sample.pid, "a sample of another process"
        thread["samples"][";".join(names)] += 1
        thread["while_running"] += any(start <= now <= end for start, end in running[sample.tid])


def states(threads, ftrace):
    """Thread states as the trace processor computes them from switches and wake-ups. Returns when
    each thread ran."""
    state, on_processor = {}, {}
    running = collections.defaultdict(list)

    def change(tid, now, new):
        if tid in state:
            since, old = state[tid]
            threads[tid]["states"][old] += now - since
            if old == "running":
                running[tid].append((since, now))
        state[tid] = (now, new)

    # A switch away from a thread comes before a wake-up at the same time.
    for now, cpu, event in sorted(ftrace, key=lambda one: (one[0], one[2].HasField("sched_waking"))):
        if event.HasField("sched_waking"):
            tid = event.sched_waking.pid
            if tid not in state or state[tid][1] == "blocked":
                change(tid, now, "runnable")
            continue
        switch = event.sched_switch
        if cpu in on_processor:
            assert on_processor[cpu] == switch.prev_pid, f"another thread ran on processor {cpu}"
        on_processor[cpu] = switch.next_pid
        left = {0: "runnable", 1: "blocked"}.get(switch.prev_state, "ended")
        change(switch.prev_pid, now, left)
        change(switch.next_pid, now, "running")
    return running


def chrome(path):
    with open(path, encoding="utf-8") as file:
        trace = json.load(file)
    threads = collections.defaultdict(new_thread)
    processes, counters, findings, starts, ends = {}, [], [], {}, {}
    slices = collections.defaultdict(list)
    for event in trace["traceEvents"]:
        tid, phase = event["tid"], event["ph"]
        # The format counts microseconds.
        now = round(event["ts"] * 1000)
        if phase == "M" and event["name"] == "thread_name":
            threads[tid]["name"] = event["args"]["name"]
            threads[tid]["pid"] = event["pid"]
        elif phase == "M" and event["name"] == "process_name":
            assert event["pid"] not in processes, "two processes have one id"
            processes[event["pid"]] = event["args"]["name"]
        elif phase == "X":
            length = round(event["dur"] * 1000)
            slices[tid].append((now, -length))
            if event["cat"] == "wait":
                threads[tid]["waits"][event["args"]["waiting_for"]] += length
            else:
                threads[tid]["states"][event["name"]] += length
        elif phase == "C":
            counters.append(event["args"]["running"])
        elif phase == "i":
            findings.append(event["name"])
        elif phase in "sf":
            side = starts if phase == "s" else ends
            assert event["id"] not in side, "a flow has two ends"
            side[event["id"]] = tid
        else:
            assert phase == "M", f"an unknown phase {phase}"
    assert starts.keys() == ends.keys(), "a flow has one end"
    for mine in slices.values():
        stack = []
        for began, length in sorted(mine):
            while stack and stack[-1] <= began:
                stack.pop()
            assert not stack or began - length <= stack[-1], "slices overlap and do not nest"
            stack.append(began - length)
    flows = [[starts[one], ends[one]] for one in starts]
    return threads, processes, flows, flows, counters, findings


def main():
    kind, path = sys.argv[1:]
    read = {"perfetto": perfetto, "chrome": chrome}[kind]
    threads, processes, flows, wakes, counters, findings = read(path)
    json.dump(
        {
            "threads": {str(tid): thread for tid, thread in threads.items()},
            "processes": processes,
            "flows": flows,
            "wakes": list(wakes),
            "counters": counters,
            "findings": findings,
        },
        sys.stdout,
    )


main()
