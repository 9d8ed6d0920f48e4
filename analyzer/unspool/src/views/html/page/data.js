// The recording, decoded. views/html/data.rs describes the layout.
import {spanTimes} from './range.js';
import {STATE_COUNT} from './states.js';

const LAYOUT_VERSION = 1;

/** Numbers of a column, read one after the other. */
class ColumnReader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  next() {
    let value = 0;
    let scale = 1;
    for (;;) {
      const byte = this.bytes[this.at];
      this.at += 1;
      value += (byte & 0x7f) * scale;
      if (byte < 0x80 || byte === undefined) return value;
      scale *= 128;
    }
  }

  nextSigned() {
    const value = this.next();
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }
}

/** Spans of all threads; those of thread `t` are from `first[t]` to `first[t + 1]`. */
function readSpans(columns, name, threads, others) {
  const counts = new ColumnReader(columns.get(`${name}.count`));
  const first = new Uint32Array(threads + 1);
  for (let thread = 0; thread < threads; thread += 1)
    first[thread + 1] = first[thread] + counts.next();
  const total = first[threads];
  const spans = {first, total, from: new Float64Array(total), to: new Float64Array(total)};
  const from = new ColumnReader(columns.get(`${name}.from`));
  const length = new ColumnReader(columns.get(`${name}.length`));
  for (let thread = 0; thread < threads; thread += 1) {
    let at = 0;
    for (let span = first[thread]; span < first[thread + 1]; span += 1) {
      at += from.nextSigned();
      spans.from[span] = at;
      at += length.next();
      spans.to[span] = at;
    }
  }
  for (const [column, array, offset] of others) {
    const reader = new ColumnReader(columns.get(`${name}.${column}`));
    const values = new array(total);
    for (let span = 0; span < total; span += 1) values[span] = reader.next() + offset;
    spans[column] = values;
  }
  return spans;
}

/** The segments as columns; those of an unknown path are none. */
function readPath(rec, reader, total) {
  const path = {total, thread: new Int32Array(total), from: new Float64Array(total + 1)};
  const [thread, length, state] = ['thread', 'length', 'state'].map(reader);
  path.state = new Uint8Array(total);
  path.from[0] = rec.critical_path?.from_ns ?? 0;
  for (let at = 0; at < total; at += 1) {
    path.thread[at] = thread.next();
    path.from[at + 1] = path.from[at] + length.next();
    path.state[at] = state.next();
  }
  return path;
}

/** The processes that the program started, with what the JSON report says of each by itself. */
function readProcesses(rec, reader) {
  const readers = (prefix, names) =>
    Object.fromEntries(names.map((name) => [name, reader(`${prefix}.${name}`)]));
  const all = readers('process', ['count', 'pid', 'creator', 'creator_tid', 'program', 'file']);
  const ran = readers('process', ['executed', 'executed_name', 'from', 'threads']);
  const each = readers('process.thread', ['tid', 'name', 'from', 'length']);
  const total = all.count.next();
  const life = (started, length) => ({
    started_ns: started,
    ended_ns: length === 0 ? null : started + length - 1,
  });
  const created = new Map(rec.created.map(([at, ...rest]) => [at, rest]));
  const creation = (at) => {
    const [key, creator, stack, truncated, name, place] = created.get(at) ?? [null, null, []];
    return {
      key,
      creator,
      creation: stack,
      creation_truncated: truncated ?? null,
      function: name ?? null,
      function_place: place ?? null,
    };
  };
  let [pid, from, before] = [0, 0, 0];
  rec.creatorOf = new Int32Array(total);
  return Array.from({length: total}, (_, index) => {
    pid += all.pid.nextSigned();
    from += ran.from.nextSigned();
    rec.creatorOf[index] = all.creator.next() - 1;
    const creator = all.creator_tid.next();
    return {
      pid,
      creator_tid: creator === 0 ? null : creator - 1,
      program: rec.names[all.program.next() - 1] ?? null,
      executable: rec.names[all.file.next() - 1] ?? null,
      executed: Array.from(
        {length: ran.executed.next()},
        () => rec.names[ran.executed_name.next()],
      ),
      started_ns: from,
      threads: Array.from({length: ran.threads.next()}, () => ({
        tid: pid + each.tid.nextSigned(),
        name: rec.names[each.name.next()],
        ...creation(before++),
        ...life(from + each.from.nextSigned(), each.length.next()),
      })),
    };
  });
}

/**
 * Adds the threads of the processes that the program started after its own ones, in `all`. The
 * others have the index of their `process`.
 */
function addThreads(rec) {
  rec.all = rec.threads.slice();
  rec.firstThread = Int32Array.from(rec.processes, ({threads}, process) => {
    const first = rec.all.length;
    const starter = rec.creatorOf[process] >= 0 ? rec.creatorOf[process] : null;
    threads.forEach((thread, at) => {
      const creator = thread.creator === null ? null : first + thread.creator;
      rec.all.push({...thread, process, creator: at === 0 ? starter : creator});
    });
    return threads.length > 0 ? first : -1;
  });
}

/**
 * Adds the locks of which only the waits are known after the recorded objects, in `allObjects`.
 * These have their waits as `lock`. `lockAt` finds the lock for which a thread waited in a span.
 */
function addLocks(rec) {
  rec.allObjects = [
    ...rec.objects,
    ...rec.lock_waits.map((lock) => ({
      ...lock.object,
      name: lock.object.name ?? (lock.internal ? `in ${lock.functions[0]}()` : null),
      lock,
      waits: {count: lock.count, total_ns: lock.total_ns, max_ns: lock.longest_ns},
    })),
  ];
  const byProcess = new Map();
  rec.lock_waits.forEach(({process}, index) => {
    if (!byProcess.has(process)) byProcess.set(process, new Map());
    const byCall = byProcess.get(process);
    for (const call of rec.lock_calls[index]) byCall.set(call, rec.objects.length + index);
  });
  rec.lockAt = (thread, span) =>
    byProcess.get(rec.all[thread].process ?? null)?.get(rec.spans.call[span]) ?? -1;
}

/** Adds to each process the one that started it, its end, and the times of its threads. */
function completeProcesses(rec) {
  rec.processes.forEach((process, index) => {
    process.parent = rec.all[rec.creatorOf[index]]?.process ?? null;
    const ends = process.threads.map((thread) => thread.ended_ns);
    const isOver = ends.length > 0 && !ends.includes(null);
    process.ended_ns = isOver ? ends.reduce((last, end) => Math.max(last, end)) : null;
    process.times = null;
    const first = rec.firstThread[index];
    if (first < 0) return;
    const sum = {running_ns: 0, runnable_ns: 0, blocked_ns: 0, stopped_ns: 0, unknown_ns: 0};
    for (let thread = first; thread < first + process.threads.length; thread += 1) {
      const times = spanTimes(rec, thread, 0, Infinity);
      sum.running_ns += times[0];
      sum.runnable_ns += times[1];
      sum.blocked_ns += times[5];
      sum.unknown_ns += times[6];
      sum.stopped_ns += times[7];
    }
    process.times = sum;
  });
}

/** When a thread began and ended. Nothing is known of other processes after the schedule's end. */
function lifeOf(rec, thread) {
  const from = thread.started_ns ?? thread.created_ns ?? null;
  if (from === null) return null;
  const end = thread.process === undefined ? rec.end : rec.recording.schedule.to_ns;
  return [from, Math.max(from, thread.ended_ns ?? end)];
}

/** Decodes the recording in the page. */
export function readRecording(bytes) {
  const size = new DataView(bytes.buffer).getUint32(0, true);
  const rec = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
  if (rec.layout !== LAYOUT_VERSION)
    throw new Error(`the data has layout ${rec.layout}, not ${LAYOUT_VERSION}`);
  const columns = new Map();
  let at = 4 + size;
  for (const [name, length] of rec.columns) {
    columns.set(name, bytes.subarray(at, at + length));
    at += length;
  }
  rec.processes = readProcesses(rec, (name) => new ColumnReader(columns.get(name)));
  addThreads(rec);
  const threads = rec.all.length;
  rec.end = Math.max(rec.recording.duration_ns, 1);
  rec.spans = readSpans(columns, 'state', threads, [
    ['kind', Uint8Array, 0],
    ['use', Int32Array, -1],
    ['holder', Int32Array, -1],
    ['waker', Int32Array, -1],
    ['call', Int32Array, -1],
  ]);
  let holds = null;
  Object.defineProperty(rec, 'holds', {
    get: () => (holds ??= readSpans(columns, 'hold', threads, [['use', Int32Array, 0]])),
  });
  const segments = new ColumnReader(columns.get('path.count')).next();
  rec.path = readPath(rec, (name) => new ColumnReader(columns.get(`path.${name}`)), segments);
  const samples = new ColumnReader(columns.get('sample.count')).next();
  const step = new ColumnReader(columns.get('sample.step'));
  const sampled = new ColumnReader(columns.get('sample.stack'));
  let time = 0;
  rec.samples = Array.from({length: samples}, () => {
    time += step.next();
    return {time, stack: sampled.next()};
  });
  rec.stackOf = (stack) =>
    typeof stack === 'number' ? rec.stacks[stack].map((frame) => rec.frames[frame]) : [];
  rec.useOf = (use) => {
    const place = rec.uses[use];
    return place ? {object: place[0], used: rec.objects[place[0]].uses[place[1]]} : null;
  };
  addLocks(rec);
  rec.life = rec.all.map((thread) => lifeOf(rec, thread));
  completeProcesses(rec);
  rec.kinds = new Set([0]);
  for (let span = 0; span < rec.spans.total && rec.kinds.size < STATE_COUNT; span += 1)
    rec.kinds.add(rec.spans.kind[span]);
  return rec;
}
