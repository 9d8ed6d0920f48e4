// The tables of effects, threads and objects.
import {counted, duration} from './format.js';
import {h} from './dom.js';
import {linkTo, selection} from './location.js';
import {changeCell, changeLegend, effectBar, largest} from './diff_values.js';
import {pairBar, signedDuration, value} from './diff_values.js';
import {causeWords, statusOf, statusTag, subjectName, subjectText} from './diff_subjects.js';
import {subjectDetails} from './diff_details.js';
import {RowTable} from './table.js';

const KINDS = {all: 'All', threads: 'Threads', lock: 'Locks', function: 'Functions'};

function isAccepted(effect) {
  const {only, noise} = selection();
  const isKind = !Object.hasOwn(KINDS, only) || only === 'all' || only === effect.kind;
  return isKind && (noise === 'show' || !effect.noise);
}

/** Which effects to show; it is drawn anew with the table. */
function effectChoices(diff) {
  const {only, noise} = selection();
  const chosen = Object.hasOwn(KINDS, only) ? only : 'all';
  const hidden = diff.effects.filter((effect) => effect.noise).length;
  const shown = noise === 'show';
  return [
    h(
      'span',
      {class: 'choices'},
      Object.entries(KINDS).map(([kind, words]) =>
        h(
          'a',
          {
            id: `only-${kind}`,
            href: linkTo({only: kind === 'all' ? null : kind}),
            'aria-current': kind === chosen ? 'true' : null,
          },
          words,
        ),
      ),
    ),
    hidden > 0
      ? h(
          'a',
          {class: 'button', id: 'show-noise', href: linkTo({noise: shown ? null : 'show'})},
          `${shown ? 'Hide' : 'Show'} ${counted(hidden, 'difference')} within noise`,
        )
      : null,
  ];
}

/** The ranked differences. */
export function effectsSection(diff) {
  const effectScale = Math.max(0, ...diff.effects.map((effect) => Math.abs(effect.effect_ns)));
  const scale = largest(diff.effects.map((effect) => effect.value_ns));
  const side = (name, title) => ({
    key: name,
    title,
    number: true,
    by: ({effect}) => effect.value_ns[name].median,
    cell: ({effect}) =>
      h(
        'td',
        {class: 'number', 'data-label': title},
        value(effect.value_ns[name].median, duration(effect.value_ns[name].median)),
      ),
  });
  const table = new RowTable({
    name: 'effects',
    title: 'What changed',
    noun: 'difference',
    empty: diff.effects.length > 0 ? 'Nothing beyond noise.' : 'Nothing.',
    accepts: ({effect}) => isAccepted(effect),
    rows: diff.effects.map((effect, at) => ({
      effect,
      id: String(at),
      faint: effect.noise,
      text: `${subjectText(diff, effect.kind, effect.index)} ${causeWords(diff, effect)}`,
      name: () => subjectName(diff, effect.kind, effect.index),
    })),
    columns: [
      {
        key: 'effect',
        title: 'Effect on the run',
        by: ({effect}) => effect.effect_ns,
        cell: ({effect}) =>
          h(
            'td',
            {class: 'effect', 'data-label': 'Effect on the run'},
            h(
              'span',
              {class: `values ${effect.effect_ns > 0 ? 'longer' : 'shorter'}`},
              value(effect.effect_ns, signedDuration(effect.effect_ns)),
            ),
            effectBar(effect, effectScale),
          ),
      },
      {
        key: 'cause',
        title: 'Why',
        by: ({effect}) => Math.abs(effect.effect_ns),
        cell: ({effect}) =>
          h(
            'td',
            {'data-label': 'Why'},
            causeWords(diff, effect),
            effect.noise ? h('span', {class: 'tag'}, 'noise') : null,
          ),
      },
      side('before', 'Before'),
      side('after', 'After'),
      {
        key: 'size',
        title: 'Before and after',
        by: ({effect}) => Math.abs(effect.value_ns.delta),
        cell: ({effect}) =>
          h('td', {'data-label': 'Before and after'}, pairBar(effect.value_ns, scale)),
      },
    ],
    details: ({effect}) => subjectDetails(diff, effect.kind, effect.index, true),
  });
  return {
    title: 'What changed the run',
    about:
      'The times are parts of the critical path; those of a lock are what its contention costs.',
    choices: () => effectChoices(diff),
    content: [table.element],
    table,
  };
}

/** A column of values before and after; `differs` may ask for more than the value itself. */
function valueColumn(items, key, field, title, measure, differs) {
  const scale = largest(items.map((it) => it[field]));
  return {
    key,
    title,
    by: ({it}) => Math.abs(it[field].delta),
    cell: ({it}) =>
      changeCell(it[field], measure, it[field].marked && (differs?.(it) ?? true), scale, title),
  };
}

/** Threads by identity: new and gone ones first, then those that work most. */
export function threadsSection(diff, {compared_as_one: asOne}) {
  const rows = diff.threads.map((it, index) => {
    const status = statusOf(it);
    return {
      it,
      index,
      id: String(index),
      text: `${subjectText(diff, 'threads', index)} ${status}`,
      name: () => [subjectName(diff, 'threads', index), statusTag(status)],
      differs: status === 'new' || status === 'gone',
    };
  });
  const work = ({it}) => Math.max(it.work_ns.before.median, it.work_ns.after.median);
  rows.sort((a, b) => b.differs - a.differs || work(b) - work(a));
  const column = (...rest) => valueColumn(diff.threads, ...rest);
  const hasProcesses = diff.threads.some((it) => it.process !== null);
  const others = hasProcesses ? ', and processes of the same program' : '';
  const table = new RowTable({
    name: 'threads',
    title: `Threads with the same function and creation stack${others}`,
    noun: 'identity',
    nouns: 'identities',
    rows,
    columns: [
      column('number', 'number', 'Number', 'number'),
      column('running', 'running_ns', 'Running', 'time'),
      column('runnable', 'runnable_ns', 'Runnable', 'time'),
      column('waiting', 'waiting_ns', 'Waiting', 'time'),
    ],
    details: (row) => subjectDetails(diff, 'threads', row.index, false),
  });
  const hasMerged = diff.threads.some((it) => it.identities > 1);
  const note = hasMerged ? h('p', {class: 'quiet'}, asOne) : null;
  return {title: 'Threads', content: [table.element, note, changeLegend(diff)], table};
}

/** Synchronization objects by identity, those with the longest waits and holds first. */
export function objectsSection(diff) {
  const rows = diff.objects.map((it, index) => ({
    it,
    index,
    id: String(index),
    text: subjectText(diff, 'lock', index),
    name: () => subjectName(diff, 'lock', index),
  }));
  const most = (change) => change.before.max + change.after.max;
  rows.sort(
    (a, b) =>
      most(b.it.waited_ns) - most(a.it.waited_ns) || most(b.it.held_ns) - most(a.it.held_ns),
  );
  const column = (...rest) => valueColumn(diff.objects, ...rest);
  const hasHolds = diff.objects.some((it) => most(it.held_ns) > 0);
  const table = new RowTable({
    name: 'objects',
    title: 'Object',
    noun: 'object',
    rows,
    columns: [
      column('waits', 'waits', 'Waits', 'number', (it) => it.waited_ns.marked),
      column('waited', 'waited_ns', 'Waited', 'time'),
      ...(hasHolds
        ? [
            column('taken', 'taken', 'Taken', 'number', (it) => it.held_ns.marked),
            column('held', 'held_ns', 'Held', 'time'),
          ]
        : []),
    ],
    details: (row) => subjectDetails(diff, 'lock', row.index, false),
  });
  const empty = h(
    'p',
    {class: 'quiet'},
    'No thread waited for a lock or another object, or the recordings were made without ' +
      '`unspool record --sync`.',
  );
  return {
    title: 'Locks and other objects',
    content: rows.length === 0 ? [empty] : [table.element],
    table: rows.length === 0 ? null : table,
  };
}
