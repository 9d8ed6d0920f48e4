// The lock order: which lock was taken while which other was held, as a graph and as a table.
import {count, counted, kindNoun, moment, shortened} from './format.js';
import {h, shortList, svg, tableHead} from './dom.js';
import {linkTo} from './location.js';
import {groupLink, momentLink, objectLink, objectName, stackPair} from './links.js';

const MAX_GRAPH_LOCKS = 24;
const MAX_GRAPH_EDGES = 60;
const LOCK_WIDTH = 176;
const LOCK_HEIGHT = 28;
const LOCK_COLUMN = 256;
const LOCK_ROW = 84;

function orderWords(rec, {edge, pairs, sizes}) {
  const [held, taken] = [edge.held, edge.taken].map((at) => lockLabel(rec, at, sizes));
  const circle = edge.circle ? ', in a circle' : '';
  if (pairs > 1)
    return `${taken} taken while ${held} held: ${counted(edge.count, 'time')}, ${counted(pairs, 'pair')}${circle}`;
  return `${taken} taken while ${held} held: ${counted(edge.count, 'time')} by ${counted(edge.threads, 'thread')}${circle}`;
}

/**
 * The edges between identities of locks, for a graph of many equal locks. Each is shown as
 * its first pair in the table.
 */
function groupedOrder(rec, edges) {
  const first = new Map();
  const groups = new Map();
  const shown = (lock) => {
    const {key} = rec.objects[lock];
    if (!first.has(key)) first.set(key, {lock, members: new Set()});
    first.get(key).members.add(lock);
    return first.get(key).lock;
  };
  for (const {edge, index} of edges) {
    const [held, taken] = [shown(edge.held), shown(edge.taken)];
    const name = `${held} ${taken} ${edge.circle}`;
    const group = groups.get(name);
    if (group) {
      group.edge.count += edge.count;
      group.pairs += 1;
    } else groups.set(name, {edge: {...edge, held, taken}, index, pairs: 1});
  }
  const sizes = new Map([...first.values()].map(({lock, members}) => [lock, members.size]));
  return [...groups.values()].map((group) => ({...group, sizes}));
}

/** What a lock of the graph is called; `sizes` has the number of locks that it stands for. */
function lockLabel(rec, lock, sizes) {
  const size = sizes?.get(lock) ?? 1;
  return `${size > 1 ? `${count(size)} × ` : ''}${objectName(rec.objects[lock])}`;
}

/**
 * The place of each lock: a lock is below all locks that are held when it is taken. Edges of
 * circles do not count for this, so the others lead downwards. Identities can be in circles of pairs
 * that are in none, so the number of rounds is limited, and rows can remain empty.
 */
function orderPlaces(edges) {
  const locks = [...new Set(edges.flatMap(({edge}) => [edge.held, edge.taken]))];
  const row = new Map(locks.map((lock) => [lock, 0]));
  const down = edges.filter(({edge}) => !edge.circle && edge.held !== edge.taken);
  for (let round = 0, changed = true; changed && round < locks.length; round += 1) {
    changed = false;
    for (const {edge} of down) {
      if (row.get(edge.taken) > row.get(edge.held)) continue;
      row.set(edge.taken, row.get(edge.held) + 1);
      changed = true;
    }
  }
  const filled = [...new Set(row.values())].sort((a, b) => a - b);
  const used = filled.map(() => 0);
  const places = new Map();
  for (const lock of locks) {
    const y = filled.indexOf(row.get(lock));
    places.set(lock, {x: used[y], y});
    used[y] += 1;
  }
  return {places, columns: Math.max(...used), rows: used.length};
}

/** The line of an edge: downwards, or as an arc beside the boxes. */
function orderLine(from, to) {
  const right = LOCK_WIDTH / 2;
  const half = LOCK_HEIGHT / 2;
  if (from.x === to.x && from.row === to.row) {
    const [x, y] = [from.x + right, from.y];
    return `M${x} ${y - 7}C${x + 36} ${y - 22} ${x + 36} ${y + 22} ${x} ${y + 7}`;
  }
  if (from.row === to.row) {
    const side = from.x < to.x ? -1 : 1;
    const [x1, x2, y] = [from.x - side * 20, to.x + side * 20, from.y + side * half];
    const arc = y + side * (20 + Math.abs(to.x - from.x) / 30);
    return `M${x1} ${y}C${x1} ${arc} ${x2} ${arc} ${x2} ${y}`;
  }
  if (to.row === from.row + 1) {
    const [y1, y2] = [from.y + half, to.y - half];
    return `M${from.x} ${y1}C${from.x} ${(y1 + y2) / 2} ${to.x} ${(y1 + y2) / 2} ${to.x} ${y2}`;
  }
  const side = to.row > from.row ? 1 : -1;
  const [x1, x2] = [from.x + side * right, to.x + side * right];
  const bend = 16 + 14 * Math.min(4, Math.abs(to.row - from.row));
  const arc = side > 0 ? Math.max(x1, x2) + bend : Math.min(x1, x2) - bend;
  return `M${x1} ${from.y}C${arc} ${from.y} ${arc} ${to.y} ${x2} ${to.y}`;
}

function orderHead(id, kind) {
  return svg(
    'marker',
    {
      id,
      viewBox: '0 0 10 10',
      refX: 9,
      refY: 5,
      markerWidth: 9,
      markerHeight: 9,
      markerUnits: 'userSpaceOnUse',
      orient: 'auto',
    },
    svg('path', {class: `head ${kind}`, d: 'M0 0L10 5L0 10z'}),
  );
}

function orderGraph(rec, edges, chosen) {
  const {places, columns, rows} = orderPlaces(edges);
  const [wide, high] = [columns * LOCK_COLUMN + 48, rows * LOCK_ROW];
  const place = (lock) => {
    const {x, y} = places.get(lock);
    return {x: 24 + (x + 0.5) * LOCK_COLUMN, y: (y + 0.5) * LOCK_ROW, row: y};
  };
  const inCircle = new Set(
    edges.filter(({edge}) => edge.circle).flatMap(({edge}) => [edge.held, edge.taken]),
  );
  const lines = edges.map((one) => {
    const {edge, index} = one;
    const d = orderLine(place(edge.held), place(edge.taken));
    const kind = edge.circle ? 'circle' : 'plain';
    return svg(
      'a',
      {
        href: linkTo({order: index}),
        class: `order ${kind}${index === chosen ? ' selected' : ''}`,
        'aria-label': orderWords(rec, one),
        'aria-current': index === chosen ? 'true' : null,
        'data-edge': index,
      },
      svg('path', {class: 'hit', d}),
      svg('path', {class: 'line', d, 'marker-end': `url(#order-${kind})`}),
      svg('title', {}, orderWords(rec, one)),
    );
  });
  const boxes = [...places.keys()].map((lock) => {
    const {x, y} = place(lock);
    const object = rec.objects[lock];
    const words = `${kindNoun(object.kind)} ${lockLabel(rec, lock, edges[0].sizes)}`;
    return svg(
      'a',
      {
        href: linkTo({object: lock, order: null}),
        class: inCircle.has(lock) ? 'lock circle' : 'lock',
        'aria-label': words,
        'data-lock': lock,
      },
      svg('rect', {
        x: x - LOCK_WIDTH / 2,
        y: y - LOCK_HEIGHT / 2,
        width: LOCK_WIDTH,
        height: LOCK_HEIGHT,
        rx: 5,
      }),
      svg('text', {x, y: y + 4, 'text-anchor': 'middle'}, shortened(lockLabel(rec, lock, edges[0].sizes), 22)),
      svg('title', {}, words),
    );
  });
  return h(
    'div',
    {class: 'scroll'},
    svg(
      'svg',
      {
        class: 'orders',
        width: wide,
        height: high,
        viewBox: `0 0 ${wide} ${high}`,
        role: 'group',
        'aria-label': 'Lock order: arrows lead from the held lock to the lock taken meanwhile',
      },
      svg('defs', {}, orderHead('order-plain', 'plain'), orderHead('order-circle', 'circle')),
      lines,
      boxes,
    ),
  );
}

function orderTable(rec, edges, chosen) {
  return shortList(
    edges,
    100,
    ({edge, index}) =>
      h(
        'tr',
        {class: index === chosen ? 'selected' : null, 'data-order': index},
        h('td', {}, objectLink(rec, edge.held)),
        h('td', {}, objectLink(rec, edge.taken)),
        h(
          'td',
          {class: 'number'},
          h(
            'a',
            {href: linkTo({order: index}), 'aria-label': `${orderWords(rec, {edge})}: stacks`},
            count(edge.count),
          ),
        ),
        h('td', {class: 'number'}, count(edge.threads)),
        h('td', {class: edge.circle ? 'warn' : null}, edge.circle ? 'in a circle' : ''),
      ),
    (items) => {
      const body = h('tbody', {}, items);
      return h(
        'table',
        {class: 'plain'},
        tableHead('Held', 'Taken meanwhile', '#Times', '#Threads', 'Circle'),
        body,
      );
    },
  );
}

/** Everything about the selected edge. */
function orderCard(rec, index) {
  const edge = rec.lock_order[index];
  const keys = edge.thread_keys.slice(0, 6);
  return h(
    'article',
    {class: 'card order-card', 'aria-label': 'Selected lock order'},
    h(
      'h3',
      {},
      objectLink(rec, edge.taken),
      ' taken while ',
      objectLink(rec, edge.held),
      ' was held',
      edge.circle ? h('span', {class: 'tag'}, 'in a circle') : null,
    ),
    h(
      'p',
      {},
      `${counted(edge.count, 'time')} by ${counted(edge.threads, 'thread')} (`,
      keys.map((key, at) => [at ? ', ' : '', groupLink(rec, key)]),
      edge.thread_keys.length > keys.length ? ', …' : '',
      '), first at ',
      momentLink(rec, edge.first_ns, edge.first_ns, {}, moment(edge.first_ns, rec.end / 100)),
      '.',
      edge.finding === null
        ? null
        : [
            ' ',
            h(
              'a',
              {href: linkTo({view: 'findings', finding: edge.finding, order: null})},
              `Finding ${edge.finding + 1}`,
            ),
            ' describes a circle with it.',
          ],
      rec.objects[edge.held].complete && rec.objects[edge.taken].complete
        ? null
        : ' Events of these locks are missing.',
    ),
    stackPair(
      rec,
      ['Taken at', rec.paths[edge.taken_path]],
      ['Held since', rec.paths[edge.held_path]],
    ),
  );
}

/** Why there is nothing to show. */
function noOrder(rec) {
  return rec.objects.some((object) => object.taken > 0)
    ? 'No recorded call took a lock while its thread held another.'
    : 'No acquisition of a lock was recorded; unspool record --sync=all records them.';
}

/** Draws the lock order: of one object, or of all if `object` is undefined. */
export function lockOrder(rec, at, object) {
  const rank = ({edge}) => (edge.finding === null ? 0 : 2) + (edge.circle ? 1 : 0);
  const all = rec.lock_order
    .map((edge, index) => ({edge, index}))
    .filter(({edge}) => object === undefined || edge.held === object || edge.taken === object)
    .sort((a, b) => rank(b) - rank(a) || b.edge.count - a.edge.count);
  if (all.length === 0 && object !== undefined) return null;
  const locks = (edges) => new Set(edges.flatMap(({edge}) => [edge.held, edge.taken])).size;
  const fits = (edges) =>
    edges.length > 0 && edges.length <= MAX_GRAPH_EDGES && locks(edges) <= MAX_GRAPH_LOCKS;
  const circles = all.filter(({edge}) => edge.circle);
  const found = circles.filter(({edge}) => edge.finding !== null);
  const grouped = groupedOrder(rec, all);
  const drawn = [all, circles, found, grouped].find(fits) ?? [];
  const parts = new Map([
    [all, ''],
    [circles, ' The graph shows the circles only.'],
    [found, ' The graph shows the circles with a finding only.'],
    [grouped, ' The graph shows locks of equal identity as one.'],
  ]);
  const part = parts.get(drawn) ?? ' There are too many for a graph.';
  return h(
    'section',
    {class: 'lock-order', 'aria-label': 'Lock order'},
    h('h2', {}, 'Lock order'),
    h(
      'p',
      {class: 'quiet'},
      all.length === 0
        ? noOrder(rec)
        : `${counted(all.length, 'pair')} of ${counted(locks(all), 'lock')}: an arrow leads from the held lock to the lock taken meanwhile.${
            circles.length === 0
              ? ' No circle.'
              : ` ${count(circles.length)} in circles${drawn.length > 0 ? ' (dashed)' : ''}; a finding says if threads can block each other.`
          }${part}`,
    ),
    drawn.length > 0 ? orderGraph(rec, drawn, at.order) : null,
    rec.lock_order[at.order] ? orderCard(rec, at.order) : null,
    all.length > 0 ? h('div', {class: 'scroll'}, orderTable(rec, all, at.order)) : null,
  );
}
