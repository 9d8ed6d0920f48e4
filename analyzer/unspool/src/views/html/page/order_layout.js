// Places the boxes and arrows of a layered graph. Nothing here knows what the boxes stand for.
//
// The steps are those of Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of
// Hierarchical System Structures", 1981: turn some arrows around so that no circle is left, put
// the boxes into layers, order each layer so that few arrows cross, and align it with its
// neighbours. An arrow that passes a layer has a place of its own in it, so no arrow crosses a box.

/** The distance of columns, and the least of rows, which grows with the arrows between them. */
const [COLUMN_GAP, MIN_ROW_GAP] = [56, 24];
const BOX_GAP = 12;
const LINE_GAP = 9;
/** The distance of two arrows at the side of a box, which grows to have room for all. */
const PORT_GAP = 8;
const LOOP_SIZE = 28;
const GRAPH_MARGIN = 8;
const ORDER_ROUNDS = 16;
const ALIGN_ROUNDS = 12;
const MAX_PASSED_LAYERS = 4000;

/** Groups of connected boxes, the largest first. */
function connected(boxes, arrows) {
  const parent = new Map(boxes.map(({id}) => [id, id]));
  const root = (id) => {
    while (parent.get(id) !== id) {
      parent.set(id, parent.get(parent.get(id)));
      id = parent.get(id);
    }
    return id;
  };
  for (const {from, to} of arrows) parent.set(root(from), root(to));
  const groups = new Map();
  const group = (id) => {
    const key = root(id);
    if (!groups.has(key)) groups.set(key, {boxes: [], arrows: []});
    return groups.get(key);
  };
  for (const box of boxes) group(box.id).boxes.push(box);
  for (const arrow of arrows) group(arrow.from).arrows.push(arrow);
  return [...groups.values()].sort((a, b) => b.boxes.length - a.boxes.length);
}

/** Arrows that lead back to a box from which a depth-first walk came. Not recursive. */
function backArrows(nodes, out) {
  const state = new Map();
  const back = new Set();
  const entered = new Set(nodes.flatMap((node) => out.get(node).map(({to}) => to)));
  const starts = [...nodes.filter((node) => !entered.has(node)), ...nodes];
  for (const start of starts) {
    if (state.has(start)) continue;
    state.set(start, 'open');
    const path = [{node: start, next: 0}];
    while (path.length > 0) {
      const top = path.at(-1);
      const arrow = out.get(top.node)[top.next];
      top.next += 1;
      if (!arrow) {
        state.set(top.node, 'done');
        path.pop();
      } else if (state.get(arrow.to) === 'open') back.add(arrow);
      else if (!state.has(arrow.to)) {
        state.set(arrow.to, 'open');
        path.push({node: arrow.to, next: 0});
      }
    }
  }
  return back;
}

/** The layer of each node: below all nodes that lead to it, and not far above its targets. */
function layersOf(nodes, links) {
  const layer = new Map(nodes.map((node) => [node, 0]));
  const [into, out] = ['to', 'from'].map((end) => {
    const by = new Map(nodes.map((node) => [node, []]));
    for (const link of links) by.get(link[end]).push(link);
    return by;
  });
  const waiting = new Map(nodes.map((node) => [node, into.get(node).length]));
  const sorted = nodes.filter((node) => waiting.get(node) === 0);
  for (let at = 0; at < sorted.length; at += 1) {
    for (const {to} of out.get(sorted[at])) {
      layer.set(to, Math.max(layer.get(to), layer.get(sorted[at]) + 1));
      waiting.set(to, waiting.get(to) - 1);
      if (waiting.get(to) === 0) sorted.push(to);
    }
  }
  for (const node of sorted.slice().reverse()) {
    const below = out.get(node).map(({to}) => layer.get(to));
    if (into.get(node).length === 0 && below.length > 0) layer.set(node, Math.min(...below) - 1);
  }
  return layer;
}

/** Number of crossings between two neighbouring layers: inversions, by merge sort. */
function crossings(upper, at) {
  const ends = upper.flatMap((item) => item.down.map((to) => at.get(to)).sort((a, b) => a - b));
  const sort = (list) => {
    if (list.length < 2) return [list, 0];
    const middle = list.length >> 1;
    const [left, before] = sort(list.slice(0, middle));
    const [right, after] = sort(list.slice(middle));
    const merged = [];
    let found = before + after;
    let [i, j] = [0, 0];
    while (i < left.length || j < right.length) {
      if (j === right.length || (i < left.length && left[i] <= right[j])) merged.push(left[i++]);
      else {
        merged.push(right[j++]);
        found += left.length - i;
      }
    }
    return [merged, found];
  };
  return sort(ends)[1];
}

/** Orders the items of each layer by the mean place of their neighbours; keeps the best order. */
function orderLayers(layers) {
  const places = () => new Map(layers.flatMap((layer) => layer.map((item, at) => [item, at])));
  const count = () => {
    const at = places();
    return layers.reduce((sum, layer) => sum + crossings(layer, at), 0);
  };
  let [best, least] = [layers.map((layer) => layer.slice()), count()];
  for (let round = 0; round < ORDER_ROUNDS && least > 0; round += 1) {
    const down = round % 2 === 0;
    const at = places();
    for (const layer of down ? layers : layers.slice().reverse()) {
      const mean = (item) => {
        const near = down ? item.up : item.down;
        if (near.length === 0) return at.get(item);
        return near.reduce((sum, other) => sum + at.get(other), 0) / near.length;
      };
      const means = new Map(layer.map((item) => [item, mean(item)]));
      layer.sort((a, b) => means.get(a) - means.get(b));
      layer.forEach((item, index) => at.set(item, index));
    }
    const now = count();
    if (now < least) [best, least] = [layers.map((layer) => layer.slice()), now];
  }
  return best;
}

/**
 * Moves the items of a layer as near as possible to where they want to be, in their order and with
 * their distances: isotonic regression, by pooling neighbours that want to be too close.
 */
function alignLayer(layer, wanted) {
  let offset = 0;
  const offsets = layer.map((item, at) => {
    const previous = layer[at - 1];
    if (previous) {
      const gap = item.box || previous.box ? BOX_GAP : LINE_GAP;
      offset += (previous.size + item.size) / 2 + gap;
    }
    return offset;
  });
  const pools = [];
  layer.forEach((item, at) => {
    const weight = item.box ? 1 : 4;
    pools.push({mean: wanted(item) - offsets[at], weight, count: 1});
    while (pools.length > 1 && pools.at(-2).mean > pools.at(-1).mean) {
      const [a, b] = pools.splice(-2);
      const sum = a.weight + b.weight;
      pools.push({
        mean: (a.mean * a.weight + b.mean * b.weight) / sum,
        weight: sum,
        count: a.count + b.count,
      });
    }
  });
  let at = 0;
  for (const {mean, count} of pools)
    for (const end = at + count; at < end; at += 1) layer[at].across = mean + offsets[at];
}

/** Aligns all layers with their neighbours, in turns. */
function alignLayers(layers) {
  for (const layer of layers) alignLayer(layer, () => 0);
  for (let round = 0; round < ALIGN_ROUNDS; round += 1) {
    const down = round % 2 === 0;
    for (const layer of down ? layers : layers.slice().reverse()) {
      alignLayer(layer, (item) => {
        const both = round >= ALIGN_ROUNDS - 2;
        const near = both ? [...item.up, ...item.down] : down ? item.up : item.down;
        if (near.length === 0) return item.across;
        return near.reduce((sum, other) => sum + other.across, 0) / near.length;
      });
    }
  }
}

/** A connected graph in layers, each with its items: the boxes, and the arrows that pass it. */
function layered({boxes, arrows}) {
  const items = new Map(boxes.map((box) => [box.id, {box, up: [], down: []}]));
  const links = arrows.filter(({from, to}) => from !== to);
  const nodes = [...items.keys()];
  const out = new Map(nodes.map((node) => [node, []]));
  for (const link of links) out.get(link.from).push(link);
  const back = backArrows(nodes, out);
  const forward = links.map((arrow) => {
    const [from, to] = back.has(arrow) ? [arrow.to, arrow.from] : [arrow.from, arrow.to];
    return {arrow, from, to};
  });
  const layer = layersOf(nodes, forward);
  const spans = forward.map(({from, to}) => layer.get(to) - layer.get(from));
  const passed = spans.reduce((sum, span) => sum + span - 1, 0);
  if (passed > MAX_PASSED_LAYERS) return null;
  const lowest = Math.min(...layer.values());
  const layers = [];
  const add = (item, at) => (layers[at - lowest] ??= []).push(item);
  for (const node of nodes) add(items.get(node), layer.get(node));
  const routes = forward.map(({arrow, from, to}) => {
    const route = [items.get(from)];
    for (let at = layer.get(from) + 1; at < layer.get(to); at += 1) {
      const item = {box: null, up: [], down: []};
      add(item, at);
      route.push(item);
    }
    route.push(items.get(to));
    for (let at = 1; at < route.length; at += 1) {
      route[at - 1].down.push(route[at]);
      route[at].up.push(route[at - 1]);
    }
    return {arrow, route, isBack: back.has(arrow)};
  });
  return {layers, routes, loops: arrows.filter(({from, to}) => from === to), items};
}

/**
 * Where the arrows of a box begin and end on one side of it: distances from its middle, in the
 * order of the other ends, so that the arrows do not cross at the box.
 */
function ports(routes, items) {
  const sides = new Map([...items.values()].map((item) => [item, {up: [], down: []}]));
  for (const one of routes) {
    sides.get(one.route[0]).down.push({one, other: one.route[1]});
    sides.get(one.route.at(-1)).up.push({one, other: one.route.at(-2)});
  }
  const at = new Map(routes.map((one) => [one, {}]));
  for (const [item, {up, down}] of sides) {
    for (const [name, ends] of [['last', up], ['first', down]]) {
      ends.sort((a, b) => a.other.across - b.other.across);
      ends.forEach(({one}, index) => {
        at.get(one)[name] = item.across + (index - (ends.length - 1) / 2) * PORT_GAP;
      });
    }
  }
  return at;
}

/** Places a connected graph; its layers are columns if `inColumns`, else rows. */
function placed(graph, inColumns) {
  const {layers, routes, loops, items} = graph;
  const looping = new Set(loops.map(({from}) => items.get(from)));
  for (const item of layers.flat()) {
    const {width, height} = item.box ?? {width: 0, height: 0};
    [item.size, item.depth] = inColumns ? [height, width] : [width, height];
    const ports = Math.max(item.up.length, item.down.length);
    if (item.box) item.size = Math.max(item.size, (ports + 1) * PORT_GAP);
    [item.width, item.height] = inColumns ? [item.depth, item.size] : [item.size, item.depth];
    if (looping.has(item)) item.size += 2 * LOOP_SIZE;
  }
  const ordered = orderLayers(layers.map((layer) => layer.slice()));
  alignLayers(ordered);
  let [along, gap] = [GRAPH_MARGIN, 0];
  const all = ordered.flat();
  const first = Math.min(...all.map(({across, size}) => across - size / 2));
  for (const item of all) item.across += GRAPH_MARGIN - first;
  for (const layer of ordered) {
    const depth = Math.max(...layer.map((item) => item.depth));
    for (const item of layer) [item.from, item.to] = [along, along + depth];
    const lines = layer.reduce((sum, item) => sum + item.down.length, 0);
    gap = inColumns ? COLUMN_GAP : Math.min(COLUMN_GAP, MIN_ROW_GAP + 4 * lines);
    along += depth + gap;
  }
  const total = [
    Math.max(...all.map(({across, size}) => across + size / 2)) + GRAPH_MARGIN,
    along - gap + GRAPH_MARGIN,
  ];
  const point = (across, way) => {
    const [x, y] = inColumns ? [way, across] : [across, way];
    return `${round(x)} ${round(y)}`;
  };
  const centre = (item) => {
    const way = (item.from + item.to) / 2;
    return inColumns ? {x: way, y: item.across} : {x: item.across, y: way};
  };
  const ends = ports(routes, items);
  const reach = (item) => (inColumns ? item.width : item.height) / 2;
  const lines = routes.map((one) => {
    const {route, arrow, isBack} = one;
    const side = (item, sign) => (item.from + item.to) / 2 + sign * reach(item);
    const {first: begin, last: end} = ends.get(one);
    // Each stop: its place across, and where the line comes to it and leaves it.
    const stops = route.map((item, at) => {
      if (at === 0) return [begin, side(item, 1), item.to];
      if (at === route.length - 1) return [end, item.from, side(item, -1)];
      return [item.across, item.from, item.to];
    });
    if (isBack) stops.reverse();
    const leave = (stop) => stop[isBack ? 1 : 2];
    const come = (stop) => stop[isBack ? 2 : 1];
    let d = `M${point(stops[0][0], come(stops[0]))}L${point(stops[0][0], leave(stops[0]))}`;
    for (let at = 1; at < stops.length; at += 1) {
      const [from, to] = [stops[at - 1], stops[at]];
      const half = (leave(from) + come(to)) / 2;
      d += `C${point(from[0], half)} ${point(to[0], half)} ${point(to[0], come(to))}`;
      // A line of no length would turn the arrow's head.
      if (come(to) !== leave(to)) d += `L${point(to[0], leave(to))}`;
    }
    return {arrow, d};
  });
  for (const arrow of loops) {
    const item = items.get(arrow.from);
    const near = item.across + item.size / 2 - LOOP_SIZE;
    const far = near + LOOP_SIZE;
    const middle = (item.from + item.to) / 2;
    const [begin, end] = [middle - 6, middle + 6];
    const bend = `C${point(far, begin - 10)} ${point(far, end + 10)} ${point(near, end)}`;
    lines.push({arrow, d: `M${point(near, begin)}${bend}`});
  }
  const boxes = [...items.values()].map((item) => {
    const {box, width, height} = item;
    return {...box, width, height, ...centre(item)};
  });
  const [width, height] = inColumns ? total.slice().reverse() : total;
  return {boxes, lines, width: Math.ceil(width), height: Math.ceil(height)};
}

/**
 * The arrows without those that follow from others: of three boxes in a row, the arrow from the
 * first to the last. `mayGo` says which arrows may be left out and stand for others.
 */
export function withoutImplied(arrows, mayGo) {
  const out = new Map();
  for (const arrow of arrows.filter(mayGo)) {
    if (!out.has(arrow.from)) out.set(arrow.from, new Set());
    out.get(arrow.from).add(arrow.to);
  }
  const leads = (from, to) => {
    const seen = new Set([from]);
    const ahead = [...(out.get(from) ?? [])].filter((next) => next !== to);
    while (ahead.length > 0) {
      const node = ahead.pop();
      if (node === to) return true;
      if (seen.has(node)) continue;
      seen.add(node);
      ahead.push(...(out.get(node) ?? []));
    }
    return false;
  };
  return arrows.filter((arrow) => {
    if (!mayGo(arrow) || !leads(arrow.from, arrow.to)) return true;
    out.get(arrow.from).delete(arrow.to);
    return false;
  });
}

function round(number) {
  return Math.round(number * 10) / 10;
}

/**
 * The drawings of the connected parts of a graph. Each has its size, its boxes with their middles,
 * and the line of each arrow. Layers are columns, unless only rows fit into `room`. Null if too
 * many arrows pass layers.
 */
export function layout(boxes, arrows, room) {
  const graphs = connected(boxes, arrows).map(layered);
  if (graphs.includes(null)) return null;
  return graphs.map((graph) => {
    const columns = placed(graph, true);
    if (columns.width <= room) return columns;
    const rows = placed(graph, false);
    return rows.width <= room || rows.width < columns.width / 2 ? rows : columns;
  });
}
