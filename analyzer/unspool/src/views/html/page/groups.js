// Groups of threads with the same identity, and the tree of creators and created threads.
import {shortFunction} from './format.js';

/** What a thread is called: its name if that is its own, else its function. */
export function threadName(rec, thread) {
  const it = rec.threads[thread];
  if (!it) return 'unknown thread';
  if (it.origin === 'main') return 'main thread';
  const main = rec.threads.find((other) => other.origin === 'main');
  const own = it.name && (!main || it.name !== main.name) ? it.name : null;
  return own ?? shortFunction(it.function) ?? 'thread';
}

/** The thread's function and name, for a group or a thread. */
function title(rec, thread) {
  const it = rec.threads[thread];
  if (it.origin === 'main') return {title: 'main thread', name: ''};
  const name = threadName(rec, thread);
  const title = shortFunction(it.function) ?? name;
  return {title, name: name === title ? '' : name};
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

/** Groups in the order of the tree, each with `depth`, `parent` and `threads`. */
export function groupThreads(rec) {
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
  const ordered = [];
  const visit = (group, depth) => {
    if (group.depth !== undefined) return;
    group.depth = depth;
    group.index = ordered.length;
    ordered.push(group);
    for (const child of group.children) visit(child, depth + 1);
  };
  for (const group of byKey.values()) if (!group.parent) visit(group, 0);
  for (const group of byKey.values()) visit(group, 0);
  const groupOf = new Int32Array(rec.threads.length);
  for (const group of ordered) {
    Object.assign(group, title(rec, group.threads[0]), {peak: peak(rec, group.threads)});
    for (const thread of group.threads) groupOf[thread] = group.index;
  }
  return {list: ordered, of: groupOf, byKey};
}
