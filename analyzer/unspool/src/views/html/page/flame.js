// Flame graphs: which call paths created threads, waited, spent processor time, or took time in
// recorded functions.
import {addressWords, counted, duration, percent, shortFunction} from './format.js';
import {h, tableHead} from './dom.js';
import {linkTo, select} from './location.js';
import {placeLink} from './links.js';
import {processName} from './groups.js';

const ROW = 20;
const MIN_SHARE = 0.0004;
const MAX_BOXES = 4000;

/** What can be drawn: each gives weighted stacks, innermost frame first. */
const SOURCES = {
  cpu: {name: 'CPU time', unit: duration, of: cpuStacks},
  waits: {name: 'Lock waits', unit: duration, of: (rec, at) => waitStacks(rec, at, ['held'])},
  others: {
    name: 'Waits for threads',
    unit: duration,
    of: (rec, at) => waitStacks(rec, at, ['others']),
  },
  idle: {name: 'Idle waits', unit: duration, of: (rec, at) => waitStacks(rec, at, ['idle'])},
  creations: {name: 'Creations', unit: (number) => counted(number, 'thread'), of: creationStacks},
  calls: {name: 'Recorded calls', unit: duration, of: callStacks},
};

function cpuStacks(rec, at) {
  const sums = new Map();
  for (const {time, stack} of rec.samples)
    if (!at.range || (time >= at.range[0] && time <= at.range[1]))
      sums.set(stack, (sums.get(stack) ?? 0) + rec.profile.period_ns);
  return [...sums].map(([stack, ns]) => [rec.stackOf(rec.profile.stacks[stack].frames), ns]);
}

function waitStacks(rec, at, kinds) {
  const stacks = [];
  const inRange = at.range ? useWaits(rec, at.range) : null;
  rec.uses.forEach((place, index) => {
    if (!place) return;
    const use = rec.objects[place[0]].uses[place[1]];
    const ns = inRange ? (inRange.get(index) ?? 0) : use.waits.total_ns;
    if (ns > 0 && kinds.includes(use.waiting_for))
      stacks.push([rec.stackOf(rec.paths[use.path].frames), ns]);
  });
  return stacks;
}

function useWaits(rec, range) {
  const sums = new Map();
  const {spans} = rec;
  for (let span = 0; span < spans.total; span += 1) {
    if (spans.use[span] < 0) continue;
    const ns = Math.min(spans.to[span], range[1]) - Math.max(spans.from[span], range[0]);
    if (ns > 0) sums.set(spans.use[span], (sums.get(spans.use[span]) ?? 0) + ns);
  }
  return sums;
}

/** Number of different stacks in a tree. */
function paths(node) {
  let [count, weight] = [0, node.weight];
  for (const child of node.children.values()) {
    count += paths(child);
    weight -= child.weight;
  }
  return weight > 0 ? count + 1 : count;
}

/** `thread`, or `thread of process tar`. */
function threadOf(rec, {process}) {
  return process === undefined ? 'thread' : `thread of ${processName(rec, process)}`;
}

function creationStacks(rec, at) {
  const inside = ({created_ns: called, started_ns: started}) => {
    const created = called ?? started;
    return !at.range || (created >= at.range[0] && created <= at.range[1]);
  };
  return rec.all
    .filter((thread) => typeof thread.creation === 'number' && inside(thread))
    .map((thread) => [
      [
        {
          file: null,
          line: null,
          module: '',
          svma: 0,
          ...thread.function_place,
          function: thread.function ?? (thread.function_place ? null : threadOf(rec, thread)),
        },
        ...rec.stackOf(thread.creation),
      ],
      1,
    ]);
}

function callStacks(rec) {
  return rec.functions.flatMap((called) =>
    called.callers
      .filter((caller) => caller.total_ns > 0)
      .map((caller) => [rec.stackOf(rec.paths[caller.path].frames), caller.total_ns]),
  );
}

function insert(tree, frames, weight) {
  let node = tree;
  node.weight += weight;
  for (const frame of frames) {
    const name = frame.function ?? addressWords(frame);
    let child = node.children.get(name);
    if (!child)
      node.children.set(
        name,
        (child = {name, frame, weight: 0, children: new Map(), parent: node}),
      );
    child.weight += weight;
    node = child;
  }
}

function pathOf(node) {
  const names = [];
  for (let at = node; at.parent; at = at.parent) names.unshift(at.name);
  return names;
}

function find(tree, root) {
  let node = tree;
  for (const name of root ? JSON.parse(root) : []) {
    const child = node.children.get(name);
    if (!child) return tree;
    node = child;
  }
  return node;
}

function safely(tree, root) {
  try {
    return find(tree, root);
  } catch {
    return tree;
  }
}

/** Draws the flame graph of the chosen source. */
export function flameView(rec, at) {
  const weighted = Object.entries(SOURCES)
    .map(([key, source]) => [key, source, source.of(rec, at)])
    .filter(([key, , stacks]) => stacks.length > 0 || key === at.flame);
  const [key, source, stacks] = weighted.find(([name]) => name === at.flame) ??
    weighted[0] ?? ['creations', SOURCES.creations, []];
  const inverted = at.invert === '1';
  const tree = {name: 'all', weight: 0, children: new Map(), parent: null};
  for (const [frames, weight] of stacks)
    insert(tree, inverted ? frames : frames.slice().reverse(), weight);
  const root = safely(tree, at.root);
  const box = h('input', {
    type: 'search',
    placeholder: 'Highlight functions',
    'aria-label': 'Highlight functions',
    value: at.q ?? '',
  });
  const graph = h('div', {
    class: 'flame',
    role: 'tree',
    'aria-label': `${source.name} by call path`,
  });
  const status = h('p', {class: 'quiet', role: 'status'});
  const boxes = [];
  let depth = 0;
  const place = (node, level, from) => {
    if (boxes.length >= MAX_BOXES) return;
    const share = node.weight / root.weight;
    if (share < MIN_SHARE) return;
    depth = Math.max(depth, level);
    const words = `${shortFunction(node.name)}: ${source.unit(node.weight)}, ${percent(node.weight, tree.weight)}`;
    const element = h(
      'button',
      {
        type: 'button',
        class: node.parent ? 'box' : 'box root',
        role: 'treeitem',
        'aria-level': level + 1,
        'aria-label': words,
        tabindex: level === 0 ? '0' : '-1',
        title: `${node.name}\n${source.unit(node.weight)}, ${percent(node.weight, tree.weight)}${node.frame?.file ? `\n${node.frame.file}:${node.frame.line}` : ''}`,
        style: {left: `${from * 100}%`, width: `${share * 100}%`, top: `${level * ROW}px`},
        onclick: () => select({root: node.parent ? JSON.stringify(pathOf(node)) : null}),
      },
      h(
        'span',
        {},
        node.parent ? shortFunction(node.name) : `${source.name}: ${source.unit(node.weight)}`,
      ),
    );
    boxes.push([node, element]);
    graph.append(element);
    let left = from;
    for (const child of [...node.children.values()].sort((a, b) => b.weight - a.weight)) {
      place(child, level + 1, left);
      left += child.weight / root.weight;
    }
  };
  if (root.weight > 0) place(root, 0, 0);
  graph.style.height = `${(depth + 1) * ROW}px`;
  graph.addEventListener('keydown', (event) => {
    const now = boxes.findIndex(([, element]) => element === document.activeElement);
    const step = {ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1}[event.key];
    if (now < 0 || !step || !boxes[now + step]) return;
    event.preventDefault();
    boxes[now + step][1].focus();
  });
  const highlight = () => {
    const wanted = box.value.toLowerCase();
    let sum = 0;
    const counts = (node, inside) => {
      const hit = wanted && node.name.toLowerCase().includes(wanted);
      if (hit && !inside) sum += node.weight;
      for (const child of node.children.values()) counts(child, inside || hit);
    };
    counts(root, false);
    for (const [node, element] of boxes)
      element.classList.toggle('hit', Boolean(wanted) && node.name.toLowerCase().includes(wanted));
    status.textContent = wanted
      ? `${percent(sum, root.weight)} is in functions that match.`
      : `${source.unit(tree.weight)} on ${counted(paths(tree), 'call path')}${at.range ? ', in the selected range' : ''}.`;
  };
  box.addEventListener('input', () => {
    select({q: box.value || null}, true);
    highlight();
  });
  highlight();
  const own = root.frame;
  return h(
    'div',
    {class: 'page'},
    h(
      'div',
      {class: 'toolbar'},
      h('h1', {}, 'Stacks'),
      h(
        'nav',
        {class: 'choices', 'aria-label': 'What the graph shows'},
        weighted.map(([name, one]) =>
          h(
            'a',
            {href: linkTo({flame: name, root: null}), 'aria-current': name === key ? 'true' : null},
            one.name,
          ),
        ),
      ),
      h(
        'a',
        {
          class: 'button',
          href: linkTo({invert: inverted ? null : '1', root: null}),
          'aria-pressed': String(inverted),
        },
        inverted ? 'From callers' : 'Inverted',
      ),
      box,
      root !== tree ? h('a', {class: 'button', href: linkTo({root: null})}, 'Whole graph') : null,
    ),
    status,
    stacks.length === 0 ? h('p', {}, 'The recording has no such stacks.') : graph,
    own ? h('p', {}, own.function && [h('code', {}, own.function), ' '], placeLink(rec, own)) : null,
    flameTable(rec, root, source),
  );
}

/** The heaviest functions as a table, for screen readers and for reading. */
function flameTable(rec, root, source) {
  const sums = new Map();
  const add = (node, above) => {
    const own =
      node.weight - [...node.children.values()].reduce((sum, child) => sum + child.weight, 0);
    const row = sums.get(node.name) ?? {node, own: 0, total: 0};
    row.own += own;
    if (!above.has(node.name)) row.total += node.weight;
    sums.set(node.name, row);
    const inside = new Set(above).add(node.name);
    for (const child of node.children.values()) add(child, inside);
  };
  for (const child of root.children.values()) add(child, new Set());
  const rows = [...sums.values()].sort((a, b) => b.total - a.total).slice(0, 30);
  if (rows.length === 0) return null;
  return h(
    'details',
    {},
    h('summary', {}, 'As a table'),
    h(
      'table',
      {class: 'plain'},
      tableHead('Function', '#With callees', '#Itself'),
      h(
        'tbody',
        {},
        rows.map((row) =>
          h(
            'tr',
            {},
            h(
              'td',
              {},
              h('code', {}, shortFunction(row.node.name)),
              ' ',
              placeLink(rec, row.node.frame),
            ),
            h('td', {class: 'number'}, source.unit(row.total)),
            h('td', {class: 'number'}, source.unit(row.own)),
          ),
        ),
      ),
    ),
  );
}
