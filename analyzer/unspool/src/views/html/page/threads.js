// The tree of creations as a table: equal threads grouped, with states and activity.
import {count, counted, duration, moment, percent} from './format.js';
import {h, shortList} from './dom.js';
import {STATES, STATE_COUNT, stateBar, stateLegend} from './states.js';
import {linkTo, select} from './location.js';
import {threadName} from './groups.js';
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
  threads: (row) => -row.group.threads.length,
  first: (row) => row.from,
  running: (row) => -row.times[0],
  lock: (row) => -row.times[2],
  others: (row) => -row.times[3],
  idle: (row) => -row.times[4],
};

function matches(rec, group, words) {
  if (!words) return true;
  const wanted = words.toLowerCase();
  if (`${group.title} ${group.name} ${group.key}`.toLowerCase().includes(wanted)) return true;
  return group.threads.some((thread) =>
    `${rec.threads[thread].name} ${rec.threads[thread].tid} ${rec.threads[thread].function}`
      .toLowerCase()
      .includes(wanted),
  );
}

function life(rec, group) {
  const lives = group.threads.map((thread) => rec.life[thread]).filter(Boolean);
  if (lives.length === 0) return {from: Infinity, to: 0, each: []};
  return {
    from: Math.min(...lives.map((it) => it[0])),
    to: Math.max(...lives.map((it) => it[1])),
    each: lives.map((it) => it[1] - it[0]),
  };
}

function lifeWords(rec, row) {
  if (row.each.length === 0) return 'not seen';
  const [least, most] = [Math.min(...row.each), Math.max(...row.each)];
  const lengths =
    duration(least) === duration(most) ? duration(most) : `${duration(least)} – ${duration(most)}`;
  return `${moment(row.from, rec.end)} – ${moment(row.to, rec.end)}${row.each.length > 1 ? `, each ${lengths}` : ''}`;
}

function memberTable(rec, at, group) {
  return shortList(
    group.threads,
    100,
    (thread) => {
      const times = threadTimes(rec, thread, at.range ?? null);
      const own = rec.life[thread];
      return h(
        'li',
        {class: at.thread === thread ? 'selected' : null},
        threadLink(rec, thread),
        h(
          'span',
          {class: 'quiet'},
          own ? `${moment(own[0], rec.end)}, ${duration(own[1] - own[0])}` : 'not seen running',
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
    (at.thread !== undefined && rec.groups.of[at.thread] === group.index && at.open !== 'none');
  const single = group.threads.length === 1;
  const whole = times.reduce((sum, ns) => sum + ns, 0);
  const first = rec.threads[group.threads[0]];
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
          single ? null : h('span', {class: 'times'}, `${count(group.threads.length)} ×`),
          ' ',
          h('span', {class: 'function', title: first.function ?? ''}, group.title),
        ),
        group.name ? h('span', {class: 'quiet'}, ` ${group.name}`) : null,
        first.tid !== null && single ? h('span', {class: 'quiet'}, ` ${first.tid}`) : null,
      ),
      h(
        'td',
        {},
        creation.length > 0
          ? frameLine(rec, callerOf(creation))
          : h('span', {class: 'quiet'}, first.origin),
      ),
      h('td', {class: 'quiet'}, lifeWords(rec, row)),
      h('td', {class: 'number', 'data-running': ''}, duration(times[0])),
      h('td', {class: 'number'}, rec.sync_recorded ? percent(times[2], whole) : '–'),
      h('td', {class: 'number'}, rec.sync_recorded ? percent(times[3], whole) : '–'),
      h('td', {class: 'number'}, rec.sync_recorded ? percent(times[4], whole) : '–'),
      h('td', {}, stateBar(times, group.title)),
      h('td', {}, sparkline(rec, group.threads, group.peak)),
    ),
    open && !single
      ? h('tr', {class: 'inside'}, h('td', {colspan: '9'}, memberTable(rec, at, group)))
      : null,
  ];
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
    const rows = rec.groups.list
      .filter((group) => matches(rec, group, box.value))
      .map((group) => ({
        group,
        times: groupTimes(rec, group.threads, at.range ?? null),
        ...life(rec, group),
      }));
    const by = SORTS[sort];
    if (by) rows.sort((a, b) => (by(a) > by(b) ? 1 : by(a) < by(b) ? -1 : 0));
    status.textContent = `${counted(
      rows.reduce((sum, row) => sum + row.group.threads.length, 0),
      'thread',
    )} of ${counted(rows.length, 'identity', 'identities')}${at.range ? ', times in the selected range' : ''}`;
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
          h('td', {colspan: '9'}, `The filter shows the first 400 of ${rows.length} identities.`),
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
            head('lock', 'Lock wait', true),
            head('others', 'Waits for threads', true),
            head('idle', 'Idle', true),
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
