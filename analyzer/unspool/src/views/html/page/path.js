// The critical path: its segments, how the timeline marks them, and what would shorten the run.
import {duration, functionName, percent} from './format.js';
import {h, tableHead, themeColor} from './dom.js';
import {linkTo} from './location.js';
import {objectLink} from './links.js';
import {groupTitle} from './groups.js';
import {RULER} from './lanes.js';

const PATH_CLASSES = ['running', 'runnable', 'away', 'others', 'stopped', 'unknown'];
const PATH_STATES = [
  'running',
  'waiting for a processor',
  'waiting for a device or timer',
  'waiting for another process',
  'stopped by the recorder',
  'not known',
];
const PATH_BINS = 400;

/** The first segment that ends after a moment. */
function segmentAt(path, ns) {
  let low = 0;
  let high = path.total;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (path.from[middle + 1] <= ns) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The words for the path at a moment, if a thread is on it. */
export function pathWords(rec, thread, ns) {
  const {path} = rec;
  const at = segmentAt(path, ns);
  if (at >= path.total || path.from[at] > ns || path.thread[at] !== thread) return null;
  return `On the critical path: ${PATH_STATES[path.state[at]]}`;
}

/** Marks the path above the lanes of its threads, and where it goes from one to the next. */
export function drawPath(timeline, context) {
  const {rec, layout} = timeline;
  const {path} = rec;
  if (path.total === 0) return;
  const ink = themeColor('ink');
  context.fillStyle = ink;
  const top = timeline.scroller.scrollTop - RULER;
  const reached = new Float64Array(layout.lanes.length).fill(-1);
  const pixel = (timeline.view[1] - timeline.view[0]) / (timeline.width - timeline.labels);
  let before = -1;
  for (
    let at = segmentAt(path, timeline.view[0]);
    at < path.total && path.from[at] < timeline.view[1];
    at += 1
  ) {
    const number = layout.laneOf[path.thread[at]];
    const lane = layout.lanes[number];
    if (!lane) {
      before = -1;
      continue;
    }
    const a = Math.max(timeline.labels, timeline.xOf(path.from[at]));
    const b = timeline.xOf(path.from[at + 1]);
    const y = lane.y - top;
    // Of segments shorter than a pixel, one stands for all.
    if (Math.floor(b) > reached[number] || b - a >= 1) {
      context.fillRect(a, y, Math.max(1, b - a), 3);
      reached[number] = Math.floor(b);
    }
    const steps = path.from[at + 1] - path.from[at] > 4 * pixel;
    if (before >= 0 && before !== number && steps) {
      const other = layout.lanes[before].y - top;
      context.globalAlpha = 0.5;
      context.fillRect(a, Math.min(y, other), 1, Math.abs(y - other));
      context.globalAlpha = 1;
    }
    before = number;
  }
}

/** The threads' name of an item or of a group. */
function identityTitle(rec, key) {
  const group = rec.groups.byKey.get(key);
  if (!group) return 'unknown threads';
  return h(
    'a',
    {href: linkTo({view: 'threads', group: key})},
    groupTitle(group),
  );
}

function pathFunction(rec, index) {
  const found = rec.critical_path.functions[index];
  return found ? functionName(found.name, found.place) : null;
}

function programLink({program}) {
  return h('a', {href: linkTo({view: 'threads', q: `process ${program}`})}, program);
}

function itemWords(rec, item) {
  if (item.kind === 'lock') return [objectLink(rec, item.object ?? rec.objects.length + item.lock_waits), ' never contended'];
  if (item.kind === 'processors') return [`${2 * rec.critical_path.processors} processors`];
  if (item.kind === 'function') {
    const name = h('span', {class: 'function'}, pathFunction(rec, item.function));
    return ['Function ', name, ' twice as fast'];
  }
  const [noun, name] =
    item.kind === 'processes'
      ? ['processes', programLink(item)]
      : ['threads', identityTitle(rec, item.key)];
  return item.waits
    ? [`Waits of ${noun} `, name, ' half as long']
    : [`${noun[0].toUpperCase()}${noun.slice(1)} `, name, ' twice as fast'];
}

/** The path as one bar: by state, over time. */
function pathBar(rec) {
  const {path} = rec;
  const whole = path.from[path.total] - path.from[0];
  const part = whole / PATH_BINS;
  const parts = [];
  let at = 0;
  for (let bin = 0; bin < PATH_BINS; bin += 1) {
    const [from, to] = [path.from[0] + bin * part, path.from[0] + (bin + 1) * part];
    const sums = new Float64Array(PATH_STATES.length);
    while (at > 0 && path.from[at] > from) at -= 1;
    for (; at < path.total && path.from[at] < to; at += 1)
      sums[path.state[at]] += Math.min(path.from[at + 1], to) - Math.max(path.from[at], from);
    const state = sums.indexOf(Math.max(...sums));
    const last = parts.at(-1);
    if (last?.state === state) last.count += 1;
    else parts.push({state, count: 1});
  }
  return h(
    'span',
    {class: 'bar', role: 'img', 'aria-label': 'The critical path over time, by state'},
    parts.map(({state, count}) =>
      h('span', {
        class: `fill ${PATH_CLASSES[state]}`,
        title: PATH_STATES[state],
        style: {'flex-grow': String(count)},
      }),
    ),
  );
}

/** The states of the path, each with its time. */
function pathLegend({path}) {
  const sums = new Float64Array(PATH_STATES.length);
  for (let at = 0; at < path.total; at += 1)
    sums[path.state[at]] += path.from[at + 1] - path.from[at];
  return h(
    'ul',
    {class: 'legend', 'aria-label': 'Time on the critical path, by state'},
    PATH_STATES.map(
      (words, state) =>
        sums[state] > 0 &&
        h(
          'li',
          {},
          h('span', {class: `swatch fill ${PATH_CLASSES[state]}`}),
          `${words} ${duration(sums[state])}`,
        ),
    ),
  );
}

/** What limits the run, for the overview; nothing if it is not known. */
export function pathCard(rec) {
  const known = rec.critical_path;
  if (!known || rec.path.total === 0) return null;
  const whole = known.to_ns - known.from_ns;
  const rows = known.impacts.slice(0, 5);
  return h(
    'section',
    {class: 'card wide critical'},
    h('h2', {}, 'What limits the run'),
    h(
      'p',
      {class: 'quiet'},
      `The critical path: the chain of events that takes the whole ${duration(whole)}. `,
      h('a', {href: linkTo({view: 'timeline'})}, 'The timeline marks it.'),
      whole - known.replayed_ns > whole / 100 &&
        ` Without the recorder's stops it takes ${duration(known.replayed_ns)}; the percentages refer to that.`,
    ),
    pathBar(rec),
    pathLegend(rec),
    rows.length === 0
      ? h('p', {}, 'No thread, function or lock alone limits it.')
      : h(
          'table',
          {class: 'plain'},
          tableHead('What if', '#Shorter by', '#Of the run'),
          h(
            'tbody',
            {},
            rows.map((item) =>
              h(
                'tr',
                {},
                h('td', {}, itemWords(rec, item)),
                h('td', {class: 'number'}, duration(item.saved_ns)),
                h('td', {class: 'number'}, percent(item.saved_ns, known.replayed_ns)),
              ),
            ),
          ),
        ),
  );
}
