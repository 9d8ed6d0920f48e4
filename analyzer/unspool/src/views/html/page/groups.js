// Groups of threads with the same identity, groups of processes that run the same program, and the
// tree of creators and created threads and processes.
import {count, functionName} from './format.js';

/** A process by the program that it ran last. */
function programName(program) {
  return `process ${program ?? 'of unknown program'}`;
}

/** What a process is called. */
export function processName(rec, process) {
  return programName(rec.processes[process].program);
}

/** What a thread is called: its name if that is its own, else its function or its process. */
export function threadName(rec, thread) {
  const it = rec.all[thread];
  if (!it) return 'unknown thread';
  if (it.process !== undefined) {
    const process = processName(rec, it.process);
    const isFirst = thread === rec.firstThread[it.process];
    return isFirst ? process : `${memberName(rec, thread)} of ${process}`;
  }
  if (it.origin === 'main') return 'main thread';
  const main = rec.threads.find((other) => other.origin === 'main');
  const own = it.name && (!main || it.name !== main.name) ? it.name : null;
  return own ?? functionName(it.function, it.function_place) ?? 'thread';
}

/** What a thread is called below the name of its group. */
export function memberName(rec, thread) {
  const {name, process, function: started, function_place: place} = rec.all[thread];
  if (process === undefined) return threadName(rec, thread);
  const first = rec.firstThread[process];
  if (thread === first) return name || (rec.processes[process].program ?? 'thread');
  const own = name && name !== rec.all[first].name ? name : null;
  return own ?? functionName(started, place) ?? (name || 'thread');
}

/** The ids of a thread: `22507`, or `pid 22500, TID 22507` in another process. */
export function threadIds(rec, thread) {
  const {tid, process} = rec.all[thread];
  if (process !== undefined) return `pid ${rec.processes[process].pid}, TID ${tid}`;
  return tid === null ? '' : String(tid);
}

/** The text of a group for a search. The key of a program is only for links. */
export function groupText(group) {
  return `${group.title} ${group.name} ${group.isProgram ? '' : group.key}`.toLowerCase();
}

/** What a group is called: `3 × worker`, `process tar`. No other group of threads has the name. */
export function groupTitle(group) {
  return group.count > 1 ? `${count(group.count)} × ${group.label}` : group.label;
}

/** The function of a group's threads, and their own names. */
function title(rec, threads) {
  const it = rec.threads[threads[0]];
  if (it.origin === 'main') return {title: 'main thread', name: ''};
  const own = functionName(it.function, it.function_place);
  const names = new Set(threads.map((thread) => threadName(rec, thread)));
  names.delete(own);
  const all = [...names];
  const name = all.length > 2 ? `${all[0]} … ${all.at(-1)}` : all.join(', ');
  return own === null ? {title: name, name: ''} : {title: own, name};
}

/**
 * Labels groups by what tells them apart: their function, or else their threads' names. All threads
 * of Rust, and all pools of one library, have the same function. `more` is the name that the label
 * leaves out.
 */
function addLabels(list) {
  const times = (words) => {
    const all = new Map();
    for (const word of words) all.set(word, (all.get(word) ?? 0) + 1);
    return all;
  };
  const titles = times(list.map((group) => group.title));
  for (const group of list) {
    const named = titles.get(group.title) > 1 && group.name;
    group.label = named ? group.name : group.title;
    group.more = named ? '' : group.name;
  }
  const labels = times(list.map((group) => group.label));
  for (const group of list)
    if (labels.get(group.label) > 1) group.label += ` ${group.key.slice(0, 4)}`;
}

/** The largest number of these threads that lived at a time. */
function peak(rec, threads) {
  const ends = [];
  for (const thread of threads) {
    if (!rec.life[thread]) continue;
    ends.push([rec.life[thread][0], 1], [rec.life[thread][1], -1]);
  }
  ends.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let living = 0;
  let most = 1;
  for (const [, step] of ends) {
    living += step;
    most = Math.max(most, living);
  }
  return most;
}

/** Groups of the program's own threads in the order of the tree. */
function groupOwn(rec) {
  const byKey = new Map();
  rec.threads.forEach((thread, index) => {
    let group = byKey.get(thread.key);
    if (!group)
      byKey.set(thread.key, (group = {key: thread.key, threads: [], children: [], parent: null}));
    group.threads.push(index);
  });
  for (const group of byKey.values()) {
    const creator = rec.threads[rec.threads[group.threads[0]].creator];
    const parent = creator && byKey.get(creator.key);
    if (parent && parent !== group) {
      group.parent = parent;
      parent.children.push(group);
    }
  }
  const list = [];
  const visit = (group, depth) => {
    if (group.depth !== undefined) return;
    group.depth = depth;
    list.push(group);
    for (const child of group.children) visit(child, depth + 1);
  };
  for (const group of byKey.values()) if (!group.parent) visit(group, 0);
  for (const group of byKey.values()) visit(group, 0);
  for (const group of list)
    Object.assign(group, title(rec, group.threads), {count: group.threads.length});
  addLabels(list);
  return {list, byKey};
}

/** An empty group of processes. */
function programGroup(key, program, parent) {
  const depth = parent ? parent.depth + 1 : 0;
  const title = programName(program);
  return {
    key,
    isProgram: true,
    threads: [],
    children: [],
    parent,
    depth,
    title,
    label: title,
    name: '',
    more: '',
    count: 0,
  };
}

function addProcess(rec, group, process) {
  group.count += 1;
  const first = rec.firstThread[process];
  for (let at = 0; at < rec.processes[process].threads.length; at += 1)
    group.threads.push(first + at);
}

/** The processes by program, in the order of the first start of each. */
function groupPrograms(rec) {
  const byProgram = new Map();
  rec.processes.forEach(({program, threads}, process) => {
    if (threads.length === 0) return;
    let group = byProgram.get(program);
    if (!group) byProgram.set(program, (group = programGroup(null, program, null)));
    addProcess(rec, group, process);
  });
  return [...byProgram.values()];
}

/** All groups of the tree; processes of one program are apart if others started them. */
function treeOf(rec, list, groupOf) {
  const unknown = {children: []};
  const programs = new Map();
  const nodeOf = [];
  let nodes = 0;
  rec.processes.forEach(({program, parent, threads}, process) => {
    if (threads.length === 0) return;
    const creator = rec.creatorOf[process];
    const above =
      (parent !== null ? nodeOf[parent] : creator >= 0 ? list[groupOf[creator]] : null) ?? unknown;
    if (!programs.has(above)) programs.set(above, new Map());
    const siblings = programs.get(above);
    let node = siblings.get(program);
    if (!node) {
      const below = above === unknown ? null : above;
      siblings.set(program, (node = programGroup(`p${nodes}`, program, below)));
      nodes += 1;
    }
    addProcess(rec, node, process);
    nodeOf[process] = node;
  });
  const tree = [];
  const seen = new Set();
  const below = (group) => [...group.children, ...(programs.get(group)?.values() ?? [])];
  const todo = [...list.filter((group) => group.depth === 0), ...below(unknown)].reverse();
  while (todo.length > 0) {
    const group = todo.pop();
    if (seen.has(group)) continue;
    seen.add(group);
    tree.push(group);
    todo.push(...below(group).reverse());
  }
  return tree;
}

/**
 * `list`: groups of the program's own threads; `lanes`: these and the groups of processes by
 * program; `of`: for each thread, its place in `lanes`; `tree`: the rows of the tree.
 */
export function groupThreads(rec) {
  const {list, byKey} = groupOwn(rec);
  const lanes = [...list, ...groupPrograms(rec)];
  const of = new Int32Array(rec.all.length);
  lanes.forEach((group, index) => {
    group.index = index;
    for (const thread of group.threads) of[thread] = index;
  });
  const tree = treeOf(rec, list, of);
  for (const group of new Set([...lanes, ...tree])) group.peak = peak(rec, group.threads);
  return {list, lanes, of, tree, byKey};
}
