// Locks of which only the waits are known, from the kernel's schedule.
import {count, counted, duration, kindNoun} from './format.js';
import {facts, h, shortList, tableHead} from './dom.js';
import {frameLine, objectName, spanLink, threadLink} from './links.js';

/** The process of a lock as a link to its first thread; null for the program itself, or several. */
export function lockProcess(rec, {process, processes}) {
  if (processes > 1) return null;
  return process === null ? null : threadLink(rec, rec.firstThread[process]);
}

/** Threads with their sums. */
function sums(rec, title, about, threads) {
  return h(
    'section',
    {},
    h('h3', {}, title),
    about ? h('p', {class: 'quiet'}, about) : null,
    threads.length === 0
      ? null
      : shortList(
          threads,
          12,
          ({thread, total_ns: ns}) =>
            h(
              'tr',
              {},
              h('td', {}, threadLink(rec, thread)),
              h('td', {class: 'number'}, duration(ns)),
            ),
          (rows) => {
            const body = h('tbody', {}, rows);
            const table = h('table', {class: 'plain'}, tableHead('Thread', '#Waits'), body);
            table.append = (...more) => body.append(...more);
            return table;
          },
        ),
  );
}

/** The longest wait for a lock: its thread and span. */
function longestWait(rec, index, waiters) {
  const {spans} = rec;
  let best = null;
  for (const {thread} of waiters) {
    for (let span = spans.first[thread]; span < spans.first[thread + 1]; span += 1) {
      const ns = spans.to[span] - spans.from[span];
      if ((!best || ns > best.ns) && rec.lockAt(thread, span) === index) best = {thread, span, ns};
    }
  }
  return best;
}

/** Everything about a lock. */
export function lockDetails(rec, index) {
  const object = rec.allObjects[index];
  const {lock} = object;
  const process = lockProcess(rec, lock);
  const longest = longestWait(rec, index, lock.waiters);
  const known = lock.holders.reduce((sum, holder) => sum + holder.total_ns, 0);
  return [
    h('h2', {}, h('span', {class: 'kind'}, kindNoun(object.kind)), ' ', objectName(object)),
    facts([
      process && ['Process', process],
      lock.processes > 1 && ['Shared by', counted(lock.processes, 'process')],
      object.address !== 0 && ['Address', h('code', {}, `0x${object.address.toString(16)}`)],
      [
        'Waits',
        h(
          'span',
          {'data-object-waits': ''},
          `${count(lock.count)}, ${duration(lock.total_ns)} in total, ${duration(lock.longest_ns)} at most`,
        ),
      ],
      lock.unended > 0 && ['Did not end', counted(lock.unended, 'wait')],
      ['Waited in', lock.functions.map((name) => `${name}()`).join(', ')],
      ['Called in', [frameLine(rec, lock.caller), lock.caller && ', for example']],
      lock.runnable_ns > 0 && [
        'Processors',
        `for ${duration(lock.runnable_ns)} of it, the holder only waited for a processor`,
      ],
    ]),
    h(
      'p',
      {class: 'quiet'},
      'The kernel’s schedule shows these waits. Calls that take or release the lock were not recorded.',
      lock.process === null && [' ', h('code', {}, 'unspool record --sync'), ' records them.'],
    ),
    longest &&
      h(
        'p',
        {},
        spanLink(rec, longest.thread, longest.span, 'Longest wait in the timeline'),
      ),
    h(
      'div',
      {class: 'pair'},
      sums(rec, `Waited: ${counted(lock.waiters.length, 'thread')}`, null, lock.waiters),
      sums(
        rec,
        'Waited for',
        lock.holders.length === 0
          ? 'Not known: no thread was seen to release the lock.'
          : `Going by the wake-ups, threads waited for these: ${duration(known)} in total.`,
        lock.holders,
      ),
    ),
  ];
}
