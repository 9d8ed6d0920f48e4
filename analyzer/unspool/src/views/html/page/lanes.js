// Which lanes the timeline has: one for each group of equal threads, and one for each thread of an
// unfolded group. Those of other processes come last, grouped by program. A lane knows where it is
// and what it shows; nothing here draws.
import {binTimes, addToBins} from './range.js';
import {threadIds, threadName} from './groups.js';

/** The height of the ruler above the lanes. */
export const RULER = 24;

export const THREAD_HEIGHT = 20;
export const GROUP_HEIGHT = 30;

/** Bins of a group's states over the whole recording. */
const GROUP_BINS = 4096;

/** If there are more threads than this, groups begin folded. */
const MAX_UNFOLDED = 80;

/** The groups that are folded at first. */
export function foldedAtFirst(rec) {
  const own = rec.groups.list.length;
  const [program, others] = [rec.threads.length, rec.all.length - rec.threads.length];
  const folds = (group) =>
    group.threads.length > 1 && (group.index < own ? program : others) > MAX_UNFOLDED;
  return new Set(rec.groups.lanes.filter(folds).map((group) => group.index));
}

/** The lanes from top to bottom, and their height together. */
export function layOut(rec, folded, wanted) {
  const lanes = [];
  const laneOf = new Int32Array(rec.all.length).fill(-1);
  let y = 0;
  const words = (wanted ?? '').toLowerCase();
  const shows = (thread, group) =>
    !words ||
    `${group.title} ${threadName(rec, thread)} ${threadIds(rec, thread)}`
      .toLowerCase()
      .includes(words);
  for (const group of rec.groups.lanes) {
    const threads = group.threads.filter((thread) => shows(thread, group));
    if (threads.length === 0) continue;
    const single = group.threads.length === 1;
    const isFolded = folded.has(group.index);
    if (!single) {
      for (const thread of group.threads) laneOf[thread] = lanes.length;
      lanes.push({
        group,
        thread: null,
        y,
        height: GROUP_HEIGHT,
        depth: group.depth,
        folded: isFolded,
      });
      y += GROUP_HEIGHT;
    }
    if (single || !isFolded) {
      for (const thread of threads) {
        laneOf[thread] = lanes.length;
        lanes.push({
          group,
          thread,
          y,
          height: THREAD_HEIGHT,
          depth: group.depth + (single ? 0 : 1),
          folded: false,
        });
        y += THREAD_HEIGHT;
      }
    }
  }
  return {lanes, laneOf, height: y};
}

/** The first lane that ends below `y`. */
export function laneAt(lanes, y) {
  let low = 0;
  let high = lanes.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (lanes[middle].y + lanes[middle].height <= y) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Adds the states of a lane between two moments to `table`; returns the share that fills it. */
export function laneStates(rec, lane, from, to, bins, table) {
  if (lane.thread !== null) {
    addToBins(rec, lane.thread, from, to, bins, table);
    return 1;
  }
  const {group} = lane;
  const fine = rec.end / GROUP_BINS;
  const width = (to - from) / bins;
  if (width < fine * 2) {
    for (const thread of group.threads) addToBins(rec, thread, from, to, bins, table);
    return group.peak;
  }
  group.bins ??= binTimes(rec, group.threads, GROUP_BINS);
  for (let state = 0; state < table.length; state += 1) {
    const source = group.bins[state];
    const target = table[state];
    for (let bin = 0; bin < bins; bin += 1) {
      const a = Math.max(0, (from + bin * width) / fine);
      const b = Math.min(GROUP_BINS, (from + (bin + 1) * width) / fine);
      let sum = 0;
      for (let at = a | 0; at < b; at += 1)
        sum += source[at] * (Math.min(at + 1, b) - Math.max(at, a));
      target[bin] += (sum * fine) / width;
    }
  }
  return group.peak;
}
