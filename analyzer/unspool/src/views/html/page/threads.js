// The tree of creations as a table: equal threads and processes grouped, with states and activity.
import {count, counted, duration, moment, percent} from './format.js';
import {h, shortList} from './dom.js';
import {STATES, STATE_COUNT, stateBar, stateLegend} from './states.js';
import {linkTo, select} from './location.js';
import {groupText, groupTitle, threadIds, threadName} from './groups.js';
import {addToBins, groupTimes, threadTimes} from './range.js';
import {callerOf, frameLine, threadLink} from './links.js';

const SPARK_BINS = 120;

/** A small picture of how much of its time a group spends in each state. */
function sparkline(rec, threads, peak) {
  const canvas = h('canvas', {
    class: 'spark',
    width: SPARK_BINS,
    height: 20,
    'aria-hidden': 'true',
  });
  const draw = () => {
    const table = Array.from({length: STATE_COUNT}, () => new Float32Array(SPARK_BINS));
    for (const thread of threads) addToBins(rec, thread, 0, rec.end, SPARK_BINS, table);
    const context = canvas.getContext('2d');
    const style = getComputedStyle(document.documentElement);
    const colors = STATES.map((state) => style.getPropertyValue(`--${state.key}`));
    for (let bin = 0; bin < SPARK_BINS; bin += 1) {
      let y = 20;
      STATES.forEach((state, at) => {
        const height = (table[state.id][bin] / peak) * (state.key === 'idle' ? 3 : 20);
        if (height <= 0) return;
        context.fillStyle = colors[at];
        context.fillRect(bin, y - height, 1, height);
        y -= height;
      });
    }
  };
  const seen = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    seen.disconnect();
    draw();
  });
  seen.observe(canvas);
  return canvas;
}

const SORTS = {
  tree: null,
  name: (row) => row.group.title,
  threads: (row) => -row.group.count,
  first: (row) => row.from,
  running: (row) => -row.times[0],
  runnable: (row) => -row.times[1],
  away: (row) => -row.times[5],
  lock: (row) => -row.times[2],
  others: (row) => -row.times[3],
  idle: (row) => -row.times[4],
};

/** Columns of single states, as far as these were recorded. */
function timeColumns(rec) {
  const whole = rec.recording.schedule && [
    {key: 'runnable', title: 'Runnable', id: 1, words: duration},
    {key: 'away', title: 'Off CPU', id: 5, words: duration},
  ];
  const shares = rec.sync_recorded && [
    {key: 'lock', title: 'Lock wait', id: 2, words: percent},
    {key: 'others', title: 'Waits for threads', id: 3, words: percent},
    {key: 'idle', title: 'Idle', id: 4, words: percent},
  ];
  return [...(whole || []), ...(shares || [])];
}

/** The cell of a creator, for threads without a creation stack. The main thread has no creator. */
const ORIGIN_CELLS = {
  main: '–',
  created: 'not known',
  before: 'before the recording',
  unseen: 'not seen',
};

/** The number of columns. */
function width(rec) {
  return String(6 + timeColumns(rec).length);
}

/** The thread that started the processes of a group, or the group of such threads. */
function creatorLink(rec, group) {
  const all = group.threads.map((thread) => rec.all[thread].creator).filter((it) => it !== null);
  const creators = new Set(all);
  if (creators.size === 1) return threadLink(rec, all[0]);
  if (creators.size === 0 || !group.parent) return h('span', {class: 'quiet'}, 'not known');
  return h('a', {href: linkTo({group: group.parent.key, thread: null})}, groupTitle(group.parent));
}

function matches(rec, group, words) {
  if (!words) return true;
  const wanted = words.toLowerCase();
  if (groupText(group).includes(wanted)) return true;
  return group.threads.some((thread) =>
    `${rec.all[thread].name} ${threadIds(rec, thread)} ${rec.all[thread].function ?? ''}`
      .toLowerCase()
      .includes(wanted),
  );
}

/** False for further threads of other processes, whose lives are part of the first one's. */
function isFirstOfProcess(rec, thread) {
  const {process} = rec.all[thread];
  return process === undefined || rec.firstThread[process] === thread;
}

/** True if no end of the thread, or of its process, was recorded. */
function hasNoEnd(rec, thread) {
  const {process, ended_ns: end} = rec.all[thread];
  return (process === undefined ? end : rec.processes[process].ended_ns) === null;
}

/** True if a thread without an end was seen alive at the end of the recording. */
function isAlive(rec, thread) {
  return rec.all[thread].process !== undefined || rec.all[thread].end === 'alive';
}

function life(rec, group) {
  const members = group.threads.filter(
    (thread) => isFirstOfProcess(rec, thread) && rec.life[thread],
  );
  const lives = members.map((thread) => rec.life[thread]);
  if (lives.length === 0) return {from: Infinity, to: 0, count: 0};
  const each = lives.map((it) => it[1] - it[0]);
  const open = members.filter((thread) => hasNoEnd(rec, thread));
  return {
    alive: open.filter((thread) => isAlive(rec, thread)).length,
    unseen: open.filter((thread) => !isAlive(rec, thread)).length,
    from: lives.reduce((first, it) => Math.min(first, it[0]), Infinity),
    to: lives.reduce((last, it) => Math.max(last, it[1]), 0),
    count: lives.length,
    least: each.reduce((least, ns) => Math.min(least, ns), Infinity),
    most: each.reduce((most, ns) => Math.max(most, ns), 0),
  };
}

function lifeWords(rec, row) {
  if (row.count === 0) return 'not seen';
  const [least, most] = [duration(row.least), duration(row.most)];
  const from = moment(row.from, rec.end);
  if (row.alive + row.unseen === 0) {
    const lengths = least === most ? most : `${least} – ${most}`;
    return `${from} – ${moment(row.to, rec.end)}${row.count > 1 ? `, each ${lengths}` : ''}`;
  }
  const some = (number, words) => {
    if (number === 0) return '';
    return number === row.count ? `, ${words}` : `, ${count(number)} ${words}`;
  };
  return `from ${from}${some(row.alive, 'alive at the end')}${some(row.unseen, 'end not seen')}`;
}

function memberLife(rec, thread) {
  const own = rec.life[thread];
  if (!own) return 'not seen running';
  const from = moment(own[0], rec.end);
  if (rec.all[thread].ended_ns !== null) return `${from}, ${duration(own[1] - own[0])}`;
  return `from ${from}, ${isAlive(rec, thread) ? 'alive at the end' : 'end not seen'}`;
}

/** Where a thread of another process was created. The row of the group says it of own threads. */
function memberCreation(rec, group, thread) {
  const creation = group.isProgram ? rec.stackOf(rec.all[thread].creation) : [];
  return creation.length > 0 ? [', created by ', frameLine(rec, callerOf(creation))] : null;
}

function memberTable(rec, at, group) {
  return shortList(
    group.threads,
    100,
    (thread) => {
      const times = threadTimes(rec, thread, at.range ?? null);
      return h(
        'li',
        {class: at.thread === thread ? 'selected' : null},
        threadLink(rec, thread),
        h(
          'span',
          {class: 'quiet'},
          memberLife(rec, thread),
          memberCreation(rec, group, thread),
        ),
        stateBar(times, threadName(rec, thread)),
      );
    },
    (items) => h('ul', {class: 'rows members'}, items),
  );
}

function groupRow(rec, at, row, flat, redraw) {
  const {group, times} = row;
  const open =
    at.group === group.key ||
    (group.threads.includes(at.thread) && at.open !== 'none');
  const single = group.threads.length === 1;
  const whole = times.reduce((sum, ns) => sum + ns, 0);
  const first = rec.all[group.threads[0]];
  const creation = rec.stackOf(first.creation);
  const indent = flat ? 0 : group.depth;
  return [
    h(
      'tr',
      {class: open ? 'open' : null, 'data-key': group.key},
      h(
        'th',
        {scope: 'row', style: {'--indent': String(Math.min(indent, 8))}},
        h(
          'a',
          {
            class: 'toggle',
            href: single
              ? linkTo({thread: group.threads[0], group: null, object: null, span: null})
              : linkTo({group: open ? null : group.key, thread: null, span: null}),
            'aria-expanded': single ? null : String(open),
          },
          single ? null : h('span', {class: 'twisty', 'aria-hidden': 'true'}, open ? '▾' : '▸'),
          group.count > 1 ? h('span', {class: 'times'}, `${count(group.count)} ×`) : null,
          ' ',
          h('span', {class: 'function', title: first.function ?? ''}, group.title),
        ),
        group.name ? h('span', {class: 'quiet'}, ` ${group.name}`) : null,
        group.threads.length > group.count
          ? h('span', {class: 'quiet'}, ` ${counted(group.threads.length, 'thread')}`)
          : null,
        first.tid !== null && single ? h('span', {class: 'quiet'}, ` ${first.tid}`) : null,
      ),
      h(
        'td',
        {},
        creation.length > 0
          ? frameLine(rec, callerOf(creation))
          : first.process === undefined
            ? h('span', {class: 'quiet'}, ORIGIN_CELLS[first.origin])
            : creatorLink(rec, group),
      ),
      h('td', {class: 'quiet lived'}, lifeWords(rec, row)),
      h('td', {class: 'number', 'data-running': ''}, duration(times[0])),
      timeColumns(rec).map(({id, words}) => h('td', {class: 'number'}, words(times[id], whole))),
      h('td', {}, stateBar(times, group.title)),
      h('td', {}, sparkline(rec, group.threads, group.peak)),
    ),
    open && !single
      ? h('tr', {class: 'inside'}, h('td', {colspan: width(rec)}, memberTable(rec, at, group)))
      : null,
  ];
}

/** `12 threads of 3 identities, 41 processes`. */
function shown(rec, rows) {
  const isOwn = ({group}) => rec.all[group.threads[0]].process === undefined;
  const sum = (some) => some.reduce((all, row) => all + row.group.count, 0);
  const [own, others] = [rows.filter(isOwn), rows.filter((row) => !isOwn(row))];
  const threads = `${counted(sum(own), 'thread')} of ${counted(own.length, 'identity', 'identities')}`;
  const processes = counted(sum(others), 'process', 'processes');
  return others.length > 0 ? `${threads}, ${processes}` : threads;
}

/** Draws the tree of threads. */
export function threadsView(rec, at) {
  const box = h('input', {
    type: 'search',
    placeholder: 'Filter by function, name or TID',
    'aria-label': 'Filter threads',
    value: at.q ?? '',
  });
  const sort = at.sort in SORTS ? at.sort : 'tree';
  const body = h('tbody', {});
  const status = h('p', {class: 'quiet', role: 'status'});
  const draw = () => {
    const rows = rec.groups.tree
      .filter((group) => matches(rec, group, box.value))
      .map((group) => ({
        group,
        times: groupTimes(rec, group.threads, at.range ?? null),
        ...life(rec, group),
      }));
    const by = SORTS[sort];
    if (by) rows.sort((a, b) => (by(a) > by(b) ? 1 : by(a) < by(b) ? -1 : 0));
    status.textContent = `${shown(rec, rows)}${at.range ? ', times in the selected range' : ''}`;
    body.replaceChildren(
      ...rows
        .slice(0, 400)
        .flatMap((row) => groupRow(rec, at, row, by !== null, draw))
        .filter(Boolean),
    );
    if (rows.length > 400)
      body.append(
        h(
          'tr',
          {},
          h('td', {colspan: width(rec)}, `The table shows the first 400 of ${rows.length} rows.`),
        ),
      );
  };
  box.addEventListener('input', () => {
    select({q: box.value || null}, true);
    draw();
  });
  draw();
  const head = (key, words, number) =>
    h(
      'th',
      {
        scope: 'col',
        class: number ? 'number' : null,
        'aria-sort':
          sort === key ? (key === 'name' || key === 'first' ? 'ascending' : 'descending') : null,
      },
      key
        ? h('a', {href: linkTo({sort: sort === key ? null : key})}, words, sort === key ? ' ↓' : '')
        : words,
    );
  return h(
    'div',
    {class: 'page'},
    h(
      'div',
      {class: 'toolbar'},
      h('h1', {}, 'Threads'),
      box,
      sort === 'tree' ? null : h('a', {class: 'button', href: linkTo({sort: null})}, 'As a tree'),
      status,
    ),
    h(
      'div',
      {class: 'scroll'},
      h(
        'table',
        {class: 'tree'},
        h(
          'thead',
          {},
          h(
            'tr',
            {},
            head('name', 'Function'),
            head(null, 'Created by'),
            head('first', 'Lived'),
            head('running', 'Running', true),
            timeColumns(rec).map(({key, title}) => head(key, title, true)),
            head(null, 'States'),
            head(null, 'Activity'),
          ),
        ),
        body,
      ),
    ),
    stateLegend(rec.kinds),
  );
}
