// The lock order: which lock was taken while which other was held, as a graph and as a table.
import {count, counted, kindNoun, moment, shortenedName} from './format.js';
import {h, shortList, svg, tableHead} from './dom.js';
import {linkTo} from './location.js';
import {groupLink, momentLink, objectLink, objectNumber, sharedName, stackPair} from './links.js';
import {layout, withoutImplied} from './order_layout.js';

const MAX_GRAPH_LOCKS = 300;
const MAX_GRAPH_EDGES = 600;
/** A graph of more arrows leaves out those that follow from others, up to the second number. */
const [MAX_ALL_EDGES, MAX_REDUCED_EDGES] = [60, 3000];
/** A graph of more locks shows equal ones as one box. */
const MAX_EQUAL_LOCKS = 24;
/** The width of a page in style.css, and that of its margins and scroll bar. */
const [MAX_PAGE_WIDTH, PAGE_MARGIN] = [1500, 52];
const LOCK_HEIGHT = 28;
const MIN_LOCK_WIDTH = 64;

/** The kinds of arrows, the gravest first, and what the legend says of them. */
const ORDER_KINDS = new Map([
  ['finding', 'in a circle with a finding'],
  ['circle', 'in a circle without a finding'],
  ['plain', 'in no circle'],
]);

function orderKind(edge) {
  if (edge.finding !== null) return 'finding';
  return edge.circle ? 'circle' : 'plain';
}

/**
 * What a lock is called, in at most `length` characters. `sizes` has the number of locks that it
 * stands for.
 */
function lockLabel(rec, sizes, lock, length) {
  const size = sizes?.get(lock) ?? 1;
  const object = rec.objects[lock];
  const [before, after] = size > 1 ? [`${count(size)} × `, ''] : ['', objectNumber(object)];
  const room = (length ?? Infinity) - before.length - after.length;
  return `${before}${shortenedName(sharedName(object), room)}${after}`;
}

function orderWords(rec, sizes, {edge, pairs}) {
  const [held, taken] = [edge.held, edge.taken].map((lock) => lockLabel(rec, sizes, lock));
  const by = pairs > 1 ? `, ${counted(pairs, 'pair')}` : ` by ${counted(edge.threads, 'thread')}`;
  const circle = edge.circle ? `, ${ORDER_KINDS.get(orderKind(edge))}` : '';
  return `${taken} taken while ${held} held: ${counted(edge.count, 'time')}${by}${circle}`;
}

/**
 * The edges between identities of locks, for a graph of many equal locks, and the number of locks
 * that each stands for. Each is shown as its first pair in the table.
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
    const name = `${held} ${taken} ${orderKind(edge)}`;
    const group = groups.get(name);
    if (group) {
      group.edge.count += edge.count;
      group.pairs += 1;
    } else groups.set(name, {edge: {...edge, held, taken}, index, pairs: 1});
  }
  const sizes = new Map([...first.values()].map(({lock, members}) => [lock, members.size]));
  return {edges: [...groups.values()], sizes};
}

function locksOf(edges) {
  return new Set(edges.flatMap(({edge}) => [edge.held, edge.taken]));
}

/** The parts of the order that a graph may show, the most wanted first. */
function* orderParts(rec, all) {
  const locks = locksOf(all).size;
  if (locks <= MAX_EQUAL_LOCKS) yield {edges: all, words: ''};
  const circles = all.filter(({edge}) => edge.circle);
  const grouped = {
    ...groupedOrder(rec, all),
    words: ' The graph shows locks of equal identity as one.',
  };
  if (circles.length === 0 && grouped.sizes.size * 2 <= locks) yield grouped;
  yield {edges: all, words: ''};
  yield {edges: circles, words: ' The graph shows the circles only.'};
  yield {
    edges: circles.filter(({edge}) => edge.finding !== null),
    words: ' The graph shows the circles with a finding only.',
  };
  yield grouped;
}

/** The number of pixels that a text in a box needs. */
function labelWidth(text) {
  const context = (labelWidth.context ??= document.createElement('canvas').getContext('2d'));
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return context.measureText(text).width;
}

/** The rank of the gravest arrow of a graph; circles with a finding come first. */
function gravest({lines}) {
  const kinds = [...ORDER_KINDS.keys()];
  return Math.min(...lines.map(({arrow}) => kinds.indexOf(orderKind(arrow.one.edge))));
}

/** The first part that fits, and where its boxes and arrows are. */
function orderDrawing(rec, order, chosen) {
  const room = Math.min(MAX_PAGE_WIDTH, document.documentElement.clientWidth) - PAGE_MARGIN;
  const length = room < 600 ? 22 : 34;
  for (const {edges, sizes, words} of orderParts(rec, order)) {
    const locks = locksOf(edges);
    if (edges.length === 0 || edges.length > MAX_REDUCED_EDGES || locks.size > MAX_GRAPH_LOCKS)
      continue;
    const all = edges.map((one) => ({from: one.edge.held, to: one.edge.taken, one}));
    const mayGo = ({one}) => !one.edge.circle && one.index !== chosen;
    const arrows = all.length > MAX_ALL_EDGES ? withoutImplied(all, mayGo) : all;
    if (arrows.length > MAX_GRAPH_EDGES) continue;
    const left = all.length - arrows.length;
    const follow = left === 1 ? 'follows' : 'follow';
    const implied =
      left > 0 ? ` The graph leaves out ${counted(left, 'arrow')} that ${follow} from others.` : '';
    const boxes = [...locks].map((lock) => {
      const label = lockLabel(rec, sizes, lock, length);
      const width = Math.max(MIN_LOCK_WIDTH, Math.ceil(labelWidth(label)) + 20);
      return {id: lock, label, width, height: LOCK_HEIGHT};
    });
    const graphs = layout(boxes, arrows, room);
    graphs?.sort((a, b) => gravest(a) - gravest(b));
    if (graphs) return {edges, sizes, words: words + implied, graphs};
  }
  return null;
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

/** What the kinds of arrows in a graph mean. */
function orderLegend(kinds) {
  const sample = (kind) =>
    svg(
      'svg',
      {class: 'orders', width: 34, height: 12, 'aria-hidden': 'true'},
      svg(
        'g',
        {class: kind},
        svg('path', {class: 'line', d: 'M1 6H32', 'marker-end': `url(#order-${kind})`}),
      ),
    );
  return h(
    'p',
    {class: 'quiet order-legend'},
    [...ORDER_KINDS]
      .filter(([kind]) => kinds.has(kind))
      .map(([kind, words]) => h('span', {}, sample(kind), ' ', words)),
  );
}

function orderGraph(rec, {edges, sizes, graphs}, chosen) {
  const kindOf = new Map();
  for (const kind of ORDER_KINDS.keys())
    for (const {edge} of edges)
      if (orderKind(edge) === kind)
        for (const lock of [edge.held, edge.taken]) if (!kindOf.has(lock)) kindOf.set(lock, kind);
  const line = ({arrow: {one}, d}) => {
    const kind = orderKind(one.edge);
    const words = orderWords(rec, sizes, one);
    return svg(
      'a',
      {
        href: linkTo({order: one.index}),
        class: `order ${kind}${one.index === chosen ? ' selected' : ''}`,
        'aria-label': words,
        'aria-current': one.index === chosen ? 'true' : null,
        'data-edge': one.index,
      },
      svg('path', {class: 'hit', d}),
      svg('path', {class: 'line', d, 'marker-end': `url(#order-${kind})`}),
      svg('title', {}, words),
    );
  };
  const box = ({id, label, x, y, width, height}) => {
    const words = `${kindNoun(rec.objects[id].kind)} ${lockLabel(rec, sizes, id)}`;
    return svg(
      'a',
      {
        href: linkTo({object: id, order: null}),
        class: `lock ${kindOf.get(id)}`,
        'aria-label': words,
        'data-lock': id,
      },
      svg('rect', {x: x - width / 2, y: y - height / 2, width, height, rx: 5}),
      svg('text', {x, y: y + 4, 'text-anchor': 'middle'}, label),
      svg('title', {}, words),
    );
  };
  const heads = svg('defs', {}, [...ORDER_KINDS.keys()].map((kind) => orderHead(`order-${kind}`, kind)));
  return [
    orderLegend(new Set(edges.map(({edge}) => orderKind(edge)))),
    h(
      'div',
      {class: 'scroll order-graphs'},
      graphs.map(({boxes, lines, width, height}, at) =>
        svg(
          'svg',
          {
            class: 'orders',
            width,
            height,
            viewBox: `0 0 ${width} ${height}`,
            role: 'group',
            'aria-label': 'Lock order: arrows lead from the held lock to the lock taken meanwhile',
          },
          at === 0 ? heads : null,
          lines.map(line),
          boxes.map(box),
        ),
      ),
    ),
  ];
}

/** A link to a finding. */
function findingLink(rec, index) {
  const {proved} = rec.findings[index];
  const href = linkTo({view: 'findings', finding: index, order: null});
  return h('a', {href}, `Finding ${index + 1} (${proved ? 'proved' : 'inferred'})`);
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
            {href: linkTo({order: index}), 'aria-label': `${orderWords(rec, null, {edge})}: stacks`},
            count(edge.count),
          ),
        ),
        h('td', {class: 'number'}, count(edge.threads)),
        h('td', {}, edge.finding === null ? '' : findingLink(rec, edge.finding)),
        h(
          'td',
          {class: edge.circle ? 'warn' : null},
          edge.circle ? `in a circle${edge.circle_note ? `: ${edge.circle_note}` : ''}` : '',
        ),
      ),
    (items) => {
      const body = h('tbody', {}, items);
      return h(
        'table',
        {class: 'plain'},
        tableHead('Held', 'Taken meanwhile', '#Times', '#Threads', 'Finding', 'Circle'),
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
        : [' ', findingLink(rec, edge.finding), ' describes a circle with it.'],
      edge.circle_note ? ` Against a deadlock: ${edge.circle_note}.` : null,
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
  const circles = all.filter(({edge}) => edge.circle).length;
  const drawing = all.length > 0 ? orderDrawing(rec, all, at.order) : null;
  return h(
    'section',
    {class: 'lock-order', 'aria-label': 'Lock order'},
    h('h2', {}, 'Lock order'),
    rec.lock_order_note ? h('p', {class: 'warn'}, rec.lock_order_note) : null,
    h(
      'p',
      {class: 'quiet'},
      all.length === 0
        ? noOrder(rec)
        : `${counted(all.length, 'pair')} of ${counted(locksOf(all).size, 'lock')}: an arrow leads from the held lock to the lock taken meanwhile. ${
            circles === 0 ? 'None are' : circles === 1 ? '1 is' : `${count(circles)} are`
          } in circles.${drawing ? drawing.words : ' There are too many for a graph.'}`,
    ),
    drawing ? orderGraph(rec, drawing, at.order) : null,
    rec.lock_order[at.order] ? orderCard(rec, at.order) : null,
    all.length > 0 ? h('div', {class: 'scroll'}, orderTable(rec, all, at.order)) : null,
  );
}
