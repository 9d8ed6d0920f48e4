// The critical path before and after: as two bars with the threads that have it, and as a table.
import {duration, percent} from './format.js';
import {h} from './dom.js';
import {MEASURES, changeCell, changeLegend, largest} from './diff_values.js';
import {LISTS, subjectName, subjectText, threadsWords} from './diff_subjects.js';
import {subjectDetails} from './diff_details.js';
import {RowTable} from './table.js';

/** Threads with a part of their own in the bars; the others are one part. */
const MAX_PARTS = 8;

/** All items with a part of the path, the largest first. */
function pathItems(diff) {
  const items = Object.entries(LISTS).flatMap(([kind, name]) =>
    diff[name].map((it, index) => ({kind, index, change: it.path_ns, id: `${kind}.${index}`})),
  );
  const most = ({change}) => Math.max(change.before.max, change.after.max);
  return items.filter((item) => most(item) > 0).sort((a, b) => most(b) - most(a));
}

/** The parts of a side's bar. What no thread has is the last part. */
function partsOf(diff, threads, side) {
  const whole = diff.net_ns[side].median;
  const parts = threads.slice(0, MAX_PARTS).map((item, at) => ({
    ns: item.change[side].median,
    label: String(at + 1),
    kind: `p${at}`,
    title: threadsWords(diff.threads[item.index]),
  }));
  const others = threads.slice(MAX_PARTS).reduce((sum, it) => sum + it.change[side].median, 0);
  parts.push({ns: others, label: '…', kind: 'remainder', title: 'other threads'});
  const known = parts.reduce((sum, part) => sum + part.ns, 0);
  parts.push({ns: Math.max(0, whole - known), label: '?', kind: 'rest', title: 'no thread'});
  // The sum of medians can be larger than the median of the sums.
  const fit = Math.min(1, whole / Math.max(known, 1));
  const shown = parts.filter((part) => part.ns > 0).map((part) => ({...part, width: part.ns * fit}));
  return {parts: shown, whole};
}

function pathSide(side, {parts, whole}, scale) {
  const words = parts.map(
    (part) => `${part.title}: ${duration(part.ns)}, ${percent(part.ns, whole)}`,
  );
  return [
    h('span', {class: 'label'}, side),
    h(
      'span',
      {class: 'wallbar path', role: 'img', 'aria-label': words.join('; ')},
      parts.map((part, at) =>
        h(
          'span',
          {
            class: `part ${part.kind}`,
            style: {width: `${(100 * part.width) / Math.max(scale, 1)}%`},
            title: words[at],
          },
          part.width * 25 > scale ? part.label : '',
        ),
      ),
    ),
    h('span', {class: 'number'}, duration(whole)),
  ];
}

function shareCell(diff, item) {
  const share = (side) => percent(item.change[side].median, diff.net_ns[side].median);
  return h('td', {class: 'quiet', 'data-label': 'Share'}, `${share('before')} → ${share('after')}`);
}

/** The section of the critical path, and its table. */
export function pathSection(diff) {
  const items = pathItems(diff);
  const threads = items.filter((item) => item.kind === 'threads');
  const number = new Map(threads.slice(0, MAX_PARTS).map((item, at) => [item.index, at]));
  const sides = ['before', 'after'].map((side) => [side, partsOf(diff, threads, side)]);
  const scale = Math.max(...sides.map(([, {whole}]) => whole));
  const barScale = largest(items.map((item) => item.change));
  const mark = (item) => {
    const at = item.kind === 'threads' ? number.get(item.index) : undefined;
    return at === undefined ? null : h('span', {class: `mark part p${at}`}, String(at + 1));
  };
  const name = (item) => [
    mark(item),
    item.kind === 'lock' ? 'while others waited for ' : null,
    subjectName(diff, item.kind, item.index),
  ];
  const table = new RowTable({
    name: 'path',
    title: 'Item',
    noun: 'item',
    rows: items.map((item) => ({
      ...item,
      text: subjectText(diff, item.kind, item.index),
      name: () => name(item),
    })),
    columns: [
      {
        key: 'time',
        title: 'Part of the path',
        by: (row) => Math.abs(row.change.delta),
        cell: ({change}) =>
          changeCell(change, 'time', change.marked, barScale, 'Part of the path'),
      },
      {
        key: 'change',
        title: 'Change',
        number: true,
        by: (row) => row.change.delta,
        cell: ({change}) =>
          h(
            'td',
            {class: 'number', 'data-label': 'Change'},
            change.delta === 0 ? '–' : MEASURES.time.signed(change.delta),
          ),
      },
      {
        key: 'share',
        title: 'Share',
        by: (row) => row.change.after.median,
        cell: (row) => shareCell(diff, row),
      },
    ],
    details: (row) => subjectDetails(diff, row.kind, row.index, true),
  });
  const empty = h('p', {class: 'quiet'}, 'The recordings have no critical path.');
  return {
    title: 'Critical path',
    about:
      'The chain of events that determined the length of the run. The bars show its threads. ' +
      'A function or a wait for a lock is part of a thread’s time.',
    content:
      items.length === 0
        ? [empty]
        : [
            h('div', {class: 'sides'}, sides.map(([side, parts]) => pathSide(side, parts, scale))),
            table.element,
            changeLegend(diff),
          ],
    table: items.length === 0 ? null : table,
  };
}
