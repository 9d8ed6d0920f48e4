// The threads' activity in a range. Without a range, the numbers are those of the JSON report.
import {STATE_COUNT} from './states.js';

/** The first span of a thread that ends after `ns`. Spans are in the order of their beginnings. */
export function firstSpan(spans, thread, ns) {
  let low = spans.first[thread];
  let high = spans.first[thread + 1];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (spans.to[middle] <= ns) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Nanoseconds by state of a thread between two moments. */
export function spanTimes(rec, thread, from, to) {
  const times = new Float64Array(STATE_COUNT);
  const life = rec.life[thread];
  if (!life) return times;
  const [begin, end] = [Math.max(from, life[0]), Math.min(to, life[1])];
  if (end <= begin) return times;
  const {spans} = rec;
  let reached = begin;
  for (let span = firstSpan(spans, thread, begin); span < spans.first[thread + 1]; span += 1) {
    if (spans.from[span] >= end) break;
    const start = Math.max(spans.from[span], reached);
    const stop = Math.min(spans.to[span], end);
    if (stop <= start) continue;
    times[spans.kind[span]] += stop - start;
    reached = stop;
  }
  const other = times.reduce((sum, ns) => sum + ns, 0);
  times[0] = Math.max(0, end - begin - other);
  return times;
}

/** Nanoseconds by state of a thread in the selected range, or as the JSON report has them. */
export function threadTimes(rec, thread, range) {
  if (range) return spanTimes(rec, thread, range[0], range[1]);
  const {times} = rec.all[thread];
  if (!times) return spanTimes(rec, thread, 0, rec.end);
  const all = spanTimes(rec, thread, 0, rec.end);
  all[2] = times.held_ns;
  all[3] = times.others_ns;
  all[4] = times.idle_ns;
  all[0] = Math.max(0, times.running_ns - all[1] - all[5] - all[6] - all[7]);
  return all;
}

/** The same, of several threads together. */
export function groupTimes(rec, threads, range) {
  const sum = new Float64Array(STATE_COUNT);
  for (const thread of threads) {
    const times = threadTimes(rec, thread, range);
    for (let state = 0; state < STATE_COUNT; state += 1) sum[state] += times[state];
  }
  return sum;
}

/** Adds the part of a span between two moments to the waits for an object. */
function addWait(waits, object, spans, span, [from, to]) {
  if (spans.to[span] <= from || spans.from[span] >= to) return;
  const ns = Math.min(spans.to[span], to) - Math.max(spans.from[span], from);
  const wait = waits.get(object) ?? {count: 0, total_ns: 0, max_ns: 0};
  wait.count += 1;
  wait.total_ns += ns;
  wait.max_ns = Math.max(wait.max_ns, ns);
  waits.set(object, wait);
}

/** By recorded object: how often and how long threads waited for it between two moments. */
export function objectWaits(rec, range) {
  const waits = new Map();
  const {spans} = rec;
  for (let span = 0; span < spans.total; span += 1) {
    const place = rec.uses[spans.use[span]];
    if (place) addWait(waits, place[0], spans, span, range ?? [0, Infinity]);
  }
  return waits;
}

/** The same for locks of which only the waits are known, by their index in `allObjects`. */
export function lockWaits(rec, range) {
  const waits = new Map();
  const {spans} = rec;
  if (rec.lock_waits.length === 0) return waits;
  for (let thread = 0; thread < rec.all.length; thread += 1) {
    for (let span = spans.first[thread]; span < spans.first[thread + 1]; span += 1) {
      const lock = rec.lockAt(thread, span);
      if (lock >= 0) addWait(waits, lock, spans, span, range);
    }
  }
  return waits;
}

/** Bins of state times over the whole recording, of several threads together: `[state][bin]`. */
export function binTimes(rec, threads, bins) {
  const table = Array.from({length: STATE_COUNT}, () => new Float64Array(bins));
  for (const thread of threads) addToBins(rec, thread, 0, rec.end, bins, table);
  return table;
}

function spread(row, from, to, start, width, bins) {
  let a = (from - start) / width;
  let b = (to - start) / width;
  if (b <= 0 || a >= bins) return;
  if (a < 0) a = 0;
  if (b > bins) b = bins;
  const first = a | 0;
  const last = Math.min(b | 0, bins - 1);
  if (first === last) {
    row[first] += b - a;
    return;
  }
  row[first] += first + 1 - a;
  for (let bin = first + 1; bin < last; bin += 1) row[bin] += 1;
  row[last] += b - last;
}

/** Adds the share of each bin that a thread spends in each state, between two moments. */
export function addToBins(rec, thread, from, to, bins, table) {
  const life = rec.life[thread];
  if (!life || life[1] < from || life[0] > to) return;
  const width = (to - from) / bins;
  const {spans} = rec;
  const running = table[0];
  const end = spans.first[thread + 1];
  let reached = life[0];
  for (let span = firstSpan(spans, thread, from); span < end; span += 1) {
    const begin = spans.from[span];
    if (begin >= to) break;
    const stop = spans.to[span];
    if (span > spans.first[thread] && reached < spans.to[span - 1]) reached = spans.to[span - 1];
    if (begin > reached) spread(running, reached, begin, from, width, bins);
    if (stop > reached) {
      spread(table[spans.kind[span]], Math.max(begin, reached), stop, from, width, bins);
      reached = stop;
    }
  }
  if (reached < from) {
    const before = firstSpan(spans, thread, from) - 1;
    if (before >= spans.first[thread]) reached = Math.max(reached, spans.to[before]);
  }
  if (reached < life[1]) spread(running, reached, life[1], from, width, bins);
}
