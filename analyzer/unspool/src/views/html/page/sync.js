// Synchronization objects: who used them, who waited for whom, and where.
import {count, counted, duration, kindNoun, shortened} from './format.js';
import {h, shortList, svg, tableHead} from './dom.js';
import {linkTo, select} from './location.js';
import {lockWaits, objectWaits} from './range.js';
import {lockProcess} from './lock_waits.js';
import {objectDetails} from './details.js';
import {callerOf, frameLine, groupLink, groupName, objectLink, objectName, stackPair} from './links.js';
import {lockOrder} from './lock_order.js';

const MAX_MATRIX = 14;

/** Sums of the waits for these objects, by pairs of waiting and holding identities. */
function pairsOf(objects) {
  const pairs = new Map();
  for (const object of objects) {
    for (const blame of object.blames) {
      const name = `${blame.waiter_key} ${blame.holder_key}`;
      const pair = pairs.get(name) ?? {
        waiter: blame.waiter_key,
        holder: blame.holder_key,
        count: 0,
        total_ns: 0,
        max_ns: 0,
      };
      pair.count += blame.count;
      pair.total_ns += blame.total_ns;
      pair.max_ns = Math.max(pair.max_ns, blame.max_ns);
      pairs.set(name, pair);
    }
  }
  return [...pairs.values()].sort((a, b) => b.total_ns - a.total_ns);
}

/** Waiters by rows, holders and wakers by columns. */
function matrix(rec, pairs) {
  const sums = new Map();
  for (const pair of pairs)
    for (const key of [pair.waiter, pair.holder])
      sums.set(key, (sums.get(key) ?? 0) + pair.total_ns);
  const keys = [...sums]
    .sort((a, b) => b[1] - a[1])
    .slice(0, MAX_MATRIX)
    .map(([key]) => key);
  const most = pairs[0].total_ns;
  const cell = (waiter, holder) => {
    const pair = pairs.find((one) => one.waiter === waiter && one.holder === holder);
    if (!pair) return h('td', {});
    return h(
      'td',
      {
        class: 'heat',
        style: {'--heat': String(Math.sqrt(pair.total_ns / most))},
        title: `${groupName(rec, waiter)} waited ${count(pair.count)} times for ${groupName(rec, holder)}, ${duration(pair.max_ns)} at most`,
      },
      duration(pair.total_ns),
    );
  };
  return h(
    'div',
    {class: 'scroll'},
    h(
      'table',
      {class: 'matrix'},
      h(
        'caption',
        {},
        'Rows waited for columns: total time',
        keys.length < sums.size ? ` (the first ${keys.length} of ${sums.size} identities)` : '',
      ),
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          h('td', {}),
          keys.map((key) => h('th', {scope: 'col'}, groupLink(rec, key))),
        ),
      ),
      h(
        'tbody',
        {},
        keys.map((waiter) =>
          h(
            'tr',
            {},
            h('th', {scope: 'row'}, groupLink(rec, waiter)),
            keys.map((holder) => cell(waiter, holder)),
          ),
        ),
      ),
    ),
  );
}

/** The same as a graph: identities on a circle, a line from waiter to holder. */
function graph(rec, pairs) {
  const shown = pairs.slice(0, 24);
  const keys = [...new Set(shown.flatMap((pair) => [pair.waiter, pair.holder]))];
  const [wide, high] = [560, 320];
  const place = new Map(
    keys.map((key, at) => {
      const angle = (2 * Math.PI * at) / keys.length - Math.PI / 2;
      return [key, [wide / 2 + Math.cos(angle) * 170, high / 2 + Math.sin(angle) * 120]];
    }),
  );
  const most = shown[0].total_ns;
  const lines = shown.map((pair) => {
    const [x1, y1] = place.get(pair.waiter);
    const [x2, y2] = place.get(pair.holder);
    const title = svg(
      'title',
      {},
      `${groupName(rec, pair.waiter)} waited ${duration(pair.total_ns)} for ${groupName(rec, pair.holder)}`,
    );
    const width = 1 + 6 * Math.sqrt(pair.total_ns / most);
    if (pair.waiter === pair.holder) {
      const out = [x1 - wide / 2, y1 - high / 2].map((d) => Math.sign(d) || 1);
      return svg(
        'path',
        {
          class: 'edge',
          'stroke-width': width,
          'marker-end': 'url(#arrow)',
          d: `M${x1} ${y1}c${out[0] * 70} ${out[1] * -10} ${out[0] * 40} ${out[1] * 60} ${out[0] * 6} ${out[1] * 14}`,
        },
        title,
      );
    }
    const [dx, dy] = [x2 - x1, y2 - y1];
    const long = Math.hypot(dx, dy);
    const [ux, uy] = [dx / long, dy / long];
    const bend = 18;
    return svg(
      'path',
      {
        class: 'edge',
        'stroke-width': width,
        'marker-end': 'url(#arrow)',
        d: `M${x1 + ux * 14} ${y1 + uy * 14}Q${(x1 + x2) / 2 - uy * bend} ${(y1 + y2) / 2 + ux * bend} ${x2 - ux * 18} ${y2 - uy * 18}`,
      },
      title,
    );
  });
  const words = shown
    .slice(0, 8)
    .map(
      (pair) =>
        `${groupName(rec, pair.waiter)} waited ${duration(pair.total_ns)} for ${groupName(rec, pair.holder)}`,
    )
    .join('; ');
  return svg(
    'svg',
    {class: 'graph', viewBox: `0 0 ${wide} ${high}`, role: 'img', 'aria-label': words},
    svg(
      'defs',
      {},
      svg(
        'marker',
        {
          id: 'arrow',
          viewBox: '0 0 10 10',
          refX: 6,
          refY: 5,
          markerWidth: 9,
          markerHeight: 9,
          markerUnits: 'userSpaceOnUse',
          orient: 'auto',
        },
        svg('path', {class: 'head', d: 'M0 0L10 5L0 10z'}),
      ),
    ),
    lines,
    keys.map((key) => {
      const [x, y] = place.get(key);
      const right = x >= wide / 2 - 1;
      const room = (right ? wide - x : x) - 12;
      return svg(
        'g',
        {},
        svg('circle', {class: 'node', cx: x, cy: y, r: 7}),
        svg(
          'text',
          {x: right ? x + 12 : x - 12, y: y + 4, 'text-anchor': right ? 'start' : 'end'},
          shortened(groupName(rec, key), Math.floor(room / 7)),
        ),
      );
    }),
  );
}

const OBJECT_SORTS = {
  waited: (row) => -row.waits.total_ns,
  waits: (row) => -row.waits.count,
  longest: (row) => -row.waits.max_ns,
  taken: (row) => -(row.object.taken ?? -1),
  held: (row) => -(row.object.holds?.total_ns ?? -1),
  queue: (row) => -(row.object.longest_queue ?? -1),
  name: (row) => objectName(row.object),
};

/** Who used an object: identities, or of a lock of which only the waits are known, its waiters. */
function users({lock, uses}) {
  if (lock) return counted(lock.waiters.length, 'waiter');
  const keys = new Set(uses.flatMap((use) => use.thread_keys));
  return counted(keys.size, 'identity', 'identities');
}

/** Cells of a recorded object; empty for a lock whose calls were not recorded. */
function callCells({lock, taken, holds, longest_queue: queue}) {
  const cell = (words) => h('td', {class: 'number'}, words);
  // With --sync, only the waits of most locks are recorded.
  if (lock || taken === 0) return ['', '', ''].map(cell);
  return [count(taken), duration(holds.total_ns), count(queue)].map(cell);
}

function objectTable(rec, at) {
  const box = h('input', {
    type: 'search',
    placeholder: 'Filter objects by name or kind',
    'aria-label': 'Filter objects',
    value: at.q ?? '',
  });
  const inRange = at.range
    ? new Map([...objectWaits(rec, at.range), ...lockWaits(rec, at.range)])
    : null;
  const none = {count: 0, total_ns: 0, max_ns: 0};
  const all = rec.allObjects.map((object, index) => ({
    object,
    index,
    waits: inRange ? (inRange.get(index) ?? none) : object.waits,
  }));
  const sort = OBJECT_SORTS[at.sort] ? at.sort : 'waited';
  const place = h('div', {});
  const head = (key, words) =>
    h(
      'th',
      {
        scope: 'col',
        class: key === 'name' ? null : 'number',
        'aria-sort': sort === key ? 'descending' : null,
      },
      h('a', {href: linkTo({sort: key})}, words, sort === key ? ' ↓' : ''),
    );
  const draw = () => {
    const wanted = box.value.toLowerCase();
    const rows = all.filter((row) =>
      `${row.object.kind} ${kindNoun(row.object.kind)} ${objectName(row.object)}`.toLowerCase().includes(wanted),
    );
    const by = OBJECT_SORTS[sort];
    rows.sort((a, b) => (by(a) > by(b) ? 1 : by(a) < by(b) ? -1 : 0));
    place.replaceChildren(
      ...shortList(
        rows,
        200,
        ({object, index, waits}) => {
          const process = object.lock && lockProcess(rec, object.lock);
          return h(
            'tr',
            {class: at.object === index ? 'selected' : null, 'data-object': index},
            h(
              'th',
              {scope: 'row'},
              objectLink(rec, index),
              process && h('span', {class: 'quiet'}, ' of ', process),
            ),
            h('td', {class: 'number'}, duration(waits.total_ns)),
            h('td', {class: 'number'}, count(waits.count)),
            h('td', {class: 'number'}, duration(waits.max_ns)),
            rec.sync_recorded && callCells(object),
            h('td', {class: 'number'}, users(object)),
          );
        },
        (items) => {
          const body = h('tbody', {}, items);
          body.append = Element.prototype.append.bind(body);
          const table = h(
            'table',
            {class: 'tree objects'},
            h(
              'thead',
              {},
              h(
                'tr',
                {},
                head('name', 'Object'),
                head('waited', 'Waited'),
                head('waits', 'Waits'),
                head('longest', 'Longest'),
                rec.sync_recorded && [
                  head('taken', 'Taken'),
                  head('held', 'Held'),
                  head('queue', 'Queue'),
                ],
                h('th', {scope: 'col', class: 'number'}, 'Users'),
              ),
            ),
            body,
          );
          table.append = (...more) => body.append(...more);
          return table;
        },
      ),
    );
  };
  box.addEventListener('input', () => {
    select({q: box.value || null}, true);
    draw();
  });
  draw();
  return [
    h(
      'div',
      {class: 'toolbar'},
      h('h2', {}, counted(rec.allObjects.length, rec.sync_recorded ? 'object' : 'lock')),
      box,
      at.range ? h('span', {class: 'quiet'}, 'waits in the selected range') : null,
    ),
    h('div', {class: 'scroll'}, place),
  ];
}

/** Both stacks of one contention. */
function blameCard(rec, blame) {
  const where = (path) => (path === null ? null : rec.paths[path]);
  const [waiter, holder] = [where(blame.waiter_path), where(blame.holder_path ?? blame.ended_path)];
  return h(
    'article',
    {class: 'card blame'},
    h('h4', {}, groupLink(rec, blame.waiter_key), ' waited for ', groupLink(rec, blame.holder_key)),
    h(
      'p',
      {},
      `${counted(blame.count, 'wait')}, ${duration(blame.total_ns)} in total, ${duration(blame.max_ns)} at most.`,
    ),
    stackPair(
      rec,
      ['Waited at', waiter],
      [blame.holder_path !== null ? 'Taken at' : 'Ended at', holder],
    ),
  );
}

const MEANING = {held: 'lock wait', others: 'for threads', idle: 'idle'};

function objectPage(rec, index) {
  const object = rec.allObjects[index];
  const attributes = {class: 'object-page', id: 'object', 'aria-label': 'Selected object'};
  if (object.lock) return h('section', attributes, objectDetails(rec, index));
  const uses = object.uses
    .slice()
    .sort((a, b) => b.waits.total_ns - a.waits.total_ns || b.calls - a.calls);
  const pairs = pairsOf([object]);
  return h(
    'section',
    attributes,
    objectDetails(rec, index),
    h('h3', {}, 'Uses'),
    h(
      'div',
      {class: 'scroll'},
      h(
        'table',
        {class: 'plain'},
        tableHead(
          'Operation',
          'Where',
          'Threads',
          '#Calls',
          '#Waits',
          '#Waited',
          '#Timed out',
          'Meaning',
          '#Held',
        ),
        h(
          'tbody',
          {},
          uses.map((use) =>
            h(
              'tr',
              {},
              h('td', {}, use.operation),
              h('td', {}, frameLine(rec, callerOf(rec.stackOf(rec.paths[use.path].frames)))),
              h(
                'td',
                {},
                use.thread_keys.slice(0, 3).map((key, at) => [at ? ', ' : '', groupLink(rec, key)]),
                use.thread_keys.length > 3 ? ` and ${use.thread_keys.length - 3} more` : '',
              ),
              h('td', {class: 'number'}, count(use.calls)),
              h('td', {class: 'number'}, count(use.waits.count)),
              h('td', {class: 'number'}, duration(use.waits.total_ns)),
              h('td', {class: 'number'}, use.timed_out.count ? count(use.timed_out.count) : ''),
              h('td', {}, use.waits.count ? (MEANING[use.waiting_for] ?? use.waiting_for) : ''),
              h('td', {class: 'number'}, use.holds.count ? duration(use.holds.total_ns) : ''),
            ),
          ),
        ),
      ),
    ),
    pairs.length > 0
      ? [
          h('h3', {}, 'Who waited for whom'),
          matrix(rec, pairs),
          shortList(
            object.blames,
            6,
            (blame) => blameCard(rec, blame),
            (items) => h('div', {}, items),
          ),
        ]
      : null,
  );
}

/** Draws the synchronization view. */
export function syncView(rec, at) {
  if (rec.allObjects.length === 0 && !rec.sync_recorded) {
    return h(
      'div',
      {class: 'page'},
      h('h1', {}, 'Synchronization'),
      h(
        'p',
        {},
        'What the threads waited for was not recorded. Record with ',
        h('code', {}, 'unspool record --sync'),
        ' to see it here.',
      ),
    );
  }
  const pairs = pairsOf(rec.objects.map((object) => ({...object, blames: object.blames})));
  const order = rec.findings
    .map((finding, index) => [finding, index])
    .filter(([finding]) => ['lock-order', 'deadlock'].includes(finding.kind));
  const chosen = at.object !== undefined && rec.allObjects[at.object];
  return h(
    'div',
    {class: 'page'},
    h('h1', {}, 'Synchronization'),
    rec.sync_recorded || chosen
      ? null
      : h(
          'p',
          {class: 'quiet'},
          'The kernel’s schedule shows who waited for which lock.',
          rec.lock_waits.some(({process}) => process === null) && [
            ' ',
            h('code', {}, 'unspool record --sync'),
            ' records more about it.',
          ],
        ),
    order.length > 0
      ? h(
          'p',
          {class: 'warn'},
          order.map(([finding, index]) => [
            h('a', {href: linkTo({view: 'findings', finding: index})}, finding.kind),
            ` (${finding.proved ? 'proved' : 'inferred'}) `,
          ]),
        )
      : null,
    chosen
      ? [
          h('p', {}, h('a', {href: linkTo({object: null})}, '← All objects')),
          objectPage(rec, at.object),
          rec.objects[at.object] && lockOrder(rec, at, at.object),
        ]
      : null,
    pairs.length > 0 && !chosen
      ? h(
          'section',
          {},
          h('h2', {}, 'Who waited for whom'),
          h('div', {class: 'pair'}, graph(rec, pairs), matrix(rec, pairs)),
        )
      : null,
    chosen || !rec.sync_recorded ? null : lockOrder(rec, at),
    h('section', {}, objectTable(rec, at)),
  );
}
