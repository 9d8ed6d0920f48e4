// The panel beside a view: everything about the selected thread, wait or object.
import {count, counted, duration, functionName, kindNoun, moment, percent} from './format.js';
import {facts, h, shortList} from './dom.js';
import {STATES, STATE_OF, stateBar} from './states.js';
import {linkTo, select} from './location.js';
import {threadName} from './groups.js';
import {spanTimes, threadTimes} from './range.js';
import {frameLine, callerOf, histogram, momentLink} from './links.js';
import {objectLink, objectName, placeLink, stackList, threadLink} from './links.js';
import {lockDetails} from './lock_waits.js';

function timesTable(times, kinds) {
  const whole = times.reduce((sum, ns) => sum + ns, 0);
  return h(
    'table',
    {class: 'times'},
    h(
      'tbody',
      {},
      STATES.filter((state) => times[state.id] > 0 || (state.id < 5 && kinds.has(state.id))).map(
        (state) =>
          h(
            'tr',
            {title: state.about},
            h('th', {scope: 'row'}, h('span', {class: `swatch fill ${state.key}`}), state.name),
            h('td', {'data-state': state.key}, duration(times[state.id])),
            h('td', {}, percent(times[state.id], whole)),
          ),
      ),
    ),
  );
}

const ORIGINS = {
  created: 'its creation was recorded',
  before: 'it ran before the recording began',
  unseen: 'its creation was not seen',
};

function waitsOf(rec, thread) {
  const list = [];
  for (let span = rec.spans.first[thread]; span < rec.spans.first[thread + 1]; span += 1) {
    if (rec.spans.use[span] >= 0) list.push(span);
  }
  return list.sort(
    (a, b) => rec.spans.to[b] - rec.spans.from[b] - (rec.spans.to[a] - rec.spans.from[a]),
  );
}

/** What a span shows in words, for the panel, the tooltip and screen readers. */
export function spanWords(rec, span) {
  const {spans} = rec;
  const state = STATE_OF[spans.kind[span]];
  const words = [`${state.name}, ${duration(spans.to[span] - spans.from[span])}`];
  const use = rec.useOf(spans.use[span]);
  if (use)
    words.push(
      `${use.used.operation} of ${rec.objects[use.object].kind} ${objectName(rec.objects[use.object])}`,
    );
  if (spans.call[span] >= 0) words.push(`in ${rec.calls[spans.call[span]]}`);
  if (spans.holder[span] >= 0) words.push(`held by ${threadName(rec, spans.holder[span])}`);
  if (spans.waker[span] >= 0) words.push(`woken by ${threadName(rec, spans.waker[span])}`);
  return words;
}

/** Selects a span of a thread; its place among the thread's spans goes into the link. */
export function selectSpan(rec, thread, span, quiet) {
  select(
    {thread, object: null, path: null, span: span === null ? null : span - rec.spans.first[thread]},
    quiet,
  );
}

function spanDetails(rec, thread, span) {
  const {spans} = rec;
  const use = rec.useOf(spans.use[span]);
  const state = STATE_OF[spans.kind[span]];
  const path = use ? rec.paths[use.used.path] : null;
  const lock = rec.lockAt(thread, span);
  return [
    h(
      'h3',
      {},
      h('span', {class: `swatch fill ${state.key}`}),
      `${state.name} for ${duration(spans.to[span] - spans.from[span])}`,
    ),
    facts([
      [
        'From',
        momentLink(rec, spans.from[span], spans.to[span], {}, moment(spans.from[span], 1e5)),
      ],
      ['To', moment(spans.to[span], 1e5)],
      spans.call[span] >= 0 && ['System call', rec.calls[spans.call[span]]],
      use && ['Object', objectLink(rec, use.object)],
      lock >= 0 && ['Object', objectLink(rec, lock)],
      use && ['Operation', use.used.operation],
      spans.kind[span] === 2 && [
        'Held by',
        spans.holder[span] >= 0 ? threadLink(rec, spans.holder[span]) : 'not known',
      ],
      (use || spans.waker[span] >= 0) && [
        'Woken by',
        spans.waker[span] >= 0 ? threadLink(rec, spans.waker[span]) : 'not known',
      ],
      use
        ? null
        : [
            'Source',
            rec.recording.schedule
              ? 'the kernel’s schedule'
              : 'an estimate from the kernel’s counters',
          ],
    ]),
    path && h('h4', {}, 'Waits at'),
    path && stackList(rec, rec.stackOf(path.frames), path.truncated),
  ];
}

/** The system calls in which a thread was blocked longest. */
function systemCalls(rec, thread) {
  const calls = thread.schedule?.system_calls ?? [];
  if (calls.length === 0) return [];
  const words = (text) => (text === null ? 'for a reason that was not recorded' : `in ${text}`);
  const wakers = {
    thread: 'other threads',
    interrupt: 'an interrupt (device, timer or network)',
    outside: 'another process or the kernel',
    recorder: 'the recorder',
  };
  const waker = ({waker, thread, process, program}) => {
    const one = thread ?? (process === null ? -1 : rec.firstThread[process]);
    if (one >= 0) return threadLink(rec, one);
    return program === null ? wakers[waker] : `processes ${program}`;
  };
  const woken = (time) => [
    '. Woken by ',
    time.woken_by
      .slice(0, 3)
      .map((by, at) => [
        at > 0 ? ', ' : '',
        waker(by),
        ` (${duration(by.blocked_ns)}, ${counted(by.count, 'time')})`,
      ]),
    time.woken_by.length > 3 && ', …',
  ];
  return [
    h('h4', {}, 'Blocked in system calls'),
    shortList(
      calls,
      8,
      (time) =>
        h(
          'li',
          {},
          `${duration(time.blocked_ns)} ${words(time.text)}, ${counted(time.count, 'time')}, at most ${duration(time.longest_ns)}`,
          time.woken_by.length > 0 && woken(time),
        ),
      (items) => h('ul', {}, items),
    ),
  ];
}

/** The function that a thread began in. */
function functionWords(rec, {function: name, function_place: place}) {
  const shown = functionName(name, place);
  if (shown === null) return null;
  return h(
    'span',
    {},
    h('span', {class: 'function'}, shown),
    ' ',
    name && place ? placeLink(rec, place) : null,
  );
}

/** What is known of a thread of the program itself. */
function ownFacts(rec, thread) {
  const called = functionWords(rec, thread) ?? (thread.origin !== 'main' && 'not known');
  return [
    called && ['Function', called],
    thread.name && ['Name', thread.name],
    [
      'Identity',
      h('a', {href: linkTo({view: 'threads', group: thread.key})}, h('code', {}, thread.key)),
    ],
  ];
}

/** What is known of a thread's process, if the program started that. */
function processFacts(rec, thread) {
  const {process: index, name} = thread;
  const process = rec.processes[index];
  const threads = process.threads.map((_, at) => rec.firstThread[index] + at);
  const called = functionWords(rec, thread);
  return [
    ['Process', `${process.program ?? 'of unknown program'}, pid ${process.pid}`],
    process.executable && ['File', h('code', {}, process.executable)],
    process.executed.length > 1 && ['Executed', process.executed.join(', then ')],
    name && ['Name', name],
    called && ['Function', called],
    threads.length > 1 && ['Threads', threadList(rec, threads)],
  ];
}

function threadList(rec, threads) {
  return shortList(
    threads,
    12,
    (thread) => h('li', {}, threadLink(rec, thread)),
    (items) => h('ul', {class: 'inline'}, items),
  );
}

function endWords(thread) {
  const about = thread.end_exact || thread.ended_ns === null;
  return `${thread.end}${thread.detached ? ', detached' : ''}${about ? '' : ' (at this time at the latest)'}`;
}

function threadDetails(rec, at) {
  const index = at.thread;
  const thread = rec.all[index];
  const isOwn = thread.process === undefined;
  const isMain = thread.origin === 'main';
  const hasOrigin = isOwn && !isMain;
  const range = at.range ?? null;
  const times = threadTimes(rec, index, range);
  const life = rec.life[index];
  const creation = rec.stackOf(thread.creation);
  const children = [];
  rec.all.forEach((other, child) => other.creator === index && children.push(child));
  const waits = waitsOf(rec, index).filter(
    (span) => !range || (rec.spans.to[span] > range[0] && rec.spans.from[span] < range[1]),
  );
  const span = at.span !== undefined ? rec.spans.first[index] + at.span : null;
  const inside = span !== null && span < rec.spans.first[index + 1];
  return [
    h(
      'h2',
      {},
      threadName(rec, index),
      thread.tid === null ? null : h('span', {class: 'quiet'}, ` TID ${thread.tid}`),
    ),
    inside ? spanDetails(rec, index, span) : null,
    inside ? h('h3', {}, 'Thread') : null,
    facts([
      ...(isOwn ? ownFacts(rec, thread) : processFacts(rec, thread)),
      [
        'Lived',
        life
          ? [
              thread.ended_ns === null && 'from ',
              momentLink(rec, life[0], life[1], {}, moment(life[0], rec.end)),
              thread.ended_ns !== null &&
                ` – ${moment(life[1], rec.end)}, ${duration(life[1] - life[0])}`,
            ]
          : 'not seen running',
      ],
      ['End', isOwn ? endWords(thread) : thread.ended_ns === null ? 'alive at the end' : 'exited'],
      !isMain && [
        'Creator',
        thread.creator === null
          ? (ORIGINS[thread.origin] ?? 'not known')
          : threadLink(rec, thread.creator),
      ],
      children.length > 0 && ['Created', threadList(rec, children)],
      thread.times?.operations > 0 && [
        'Operations',
        `${count(thread.times.operations)} on synchronization objects`,
      ],
      thread.times?.on_cpu_ns != null && [
        'On a CPU',
        `${duration(thread.times.on_cpu_ns)}, as the kernel reports`,
      ],
    ]),
    h('h4', {}, range ? 'Time in the selected range' : 'Time'),
    stateBar(times, 'Time of the thread:'),
    timesTable(times, rec.kinds),
    (hasOrigin || creation.length > 0) && h('h4', {}, 'Created at'),
    (hasOrigin || creation.length > 0) &&
      (creation.length > 0
        ? stackList(rec, creation, thread.creation_truncated)
        : h('p', {class: 'quiet'}, `${ORIGINS[thread.origin]}.`)),
    ...systemCalls(rec, thread),
    waits.length > 0 && h('h4', {}, `Longest of ${counted(waits.length, 'wait')}`),
    waits.length > 0 &&
      shortList(
        waits,
        8,
        (wait) => {
          const use = rec.useOf(rec.spans.use[wait]);
          return h(
            'li',
            {},
            h(
              'a',
              {href: linkTo({thread: index, span: wait - rec.spans.first[index], object: null})},
              duration(rec.spans.to[wait] - rec.spans.from[wait]),
            ),
            ' ',
            use ? objectLink(rec, use.object) : null,
            h('span', {class: 'quiet'}, ` at ${moment(rec.spans.from[wait], rec.end / 1000)}`),
          );
        },
        (items) => h('ol', {class: 'waits'}, items),
      ),
  ];
}

/** Everything about an object. */
export function objectDetails(rec, index) {
  if (rec.allObjects[index].lock) return lockDetails(rec, index);
  const object = rec.objects[index];
  const origin = rec.stackOf(rec.paths[object.origin]?.frames);
  return [
    h('h2', {}, h('span', {class: 'kind'}, kindNoun(object.kind)), ' ', objectName(object)),
    facts([
      ['Address', h('code', {}, `0x${object.address.toString(16)}`)],
      ['Identity', h('code', {}, object.key)],
      [
        'Lived',
        `${object.made ? 'made' : 'first used'} at ${moment(object.since_ns, rec.end)}${object.destroyed_ns === null ? '' : `, destroyed at ${moment(object.destroyed_ns, rec.end)}`}`,
      ],
      object.taken > 0 && ['Taken', `${count(object.taken)} times`],
      [
        'Waits',
        h(
          'span',
          {'data-object-waits': ''},
          `${count(object.waits.count)}, ${duration(object.waits.total_ns)} in total, ${duration(object.waits.max_ns)} at most`,
        ),
      ],
      [
        'Holds',
        `${count(object.holds.count)}, ${duration(object.holds.total_ns)} in total, ${duration(object.holds.max_ns)} at most`,
      ],
      ['Longest queue', counted(object.longest_queue, 'thread')],
      object.complete ? null : ['Doubt', 'Events of this object are missing.'],
      [object.made ? 'Made at' : 'First used at', frameLine(rec, callerOf(origin))],
    ]),
    h(
      'p',
      {},
      h(
        'a',
        {href: linkTo({view: 'timeline', object: index, thread: null, span: null})},
        'Show its waits and holds in the timeline',
      ),
    ),
    h(
      'div',
      {class: 'pair'},
      histogram(object.waits, 'Waits by length'),
      histogram(object.holds, 'Holds by length'),
    ),
  ];
}

/** `2 threads`, `2 threads and 5 threads of other processes`. */
function livedWords(rec, rows) {
  const own = rows.filter(([thread]) => thread < rec.threads.length).length;
  const others = rows.length - own;
  if (others === 0) return counted(own, 'thread');
  return `${counted(own, 'thread')} and ${counted(others, 'thread')} of other processes`;
}

/** Statistics of the selected range. */
function rangeDetails(rec, range) {
  const rows = rec.all
    .map((_, thread) => [thread, spanTimes(rec, thread, range[0], range[1])])
    .filter(([, times]) => times.some((ns) => ns > 0))
    .sort((a, b) => b[1][0] - a[1][0]);
  return [
    h('h2', {}, `Range of ${duration(range[1] - range[0])}`),
    h(
      'p',
      {},
      `${moment(range[0], range[1] - range[0])} – ${moment(range[1], range[1] - range[0])}; ${livedWords(rec, rows)} lived.`,
    ),
    shortList(
      rows,
      20,
      ([thread, times]) =>
        h('li', {}, threadLink(rec, thread), stateBar(times, threadName(rec, thread))),
      (items) => h('ul', {class: 'rows'}, items),
    ),
  ];
}

/** The panel for what is selected, or nothing. */
export function detailsPanel(rec, at) {
  let content = null;
  if (at.thread !== undefined && rec.all[at.thread]) content = threadDetails(rec, at);
  else if (at.object !== undefined && rec.allObjects[at.object] && at.view !== 'sync')
    content = objectDetails(rec, at.object);
  else if (at.range && at.view === 'timeline') content = rangeDetails(rec, at.range);
  if (!content) return null;
  return h(
    'aside',
    {class: 'details', 'aria-label': 'Details', tabindex: '-1'},
    h(
      'button',
      {
        class: 'close',
        type: 'button',
        'aria-label': 'Close the details',
        title: 'Close (Escape)',
        onclick: () => select({thread: null, object: null, span: null}),
      },
      '×',
    ),
    content,
  );
}
