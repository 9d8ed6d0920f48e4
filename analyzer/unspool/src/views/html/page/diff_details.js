// What an opened row shows: the places of an item, and all its values.
import {addressWords, shortFunction} from './format.js';
import {h, tableHead} from './dom.js';
import {linkTo} from './location.js';
import {withRow} from './table_rows.js';
import {MEASURES, arrow, signedPercent, spreadWords, value} from './diff_values.js';
import {LISTS, lineWords} from './diff_subjects.js';

const VALUES = {
  threads: [
    ['number', 'Number', 'number'],
    ['running_ns', 'Running', 'time'],
    ['runnable_ns', 'Runnable: waited for a processor', 'time'],
    ['waiting_ns', 'Waiting', 'time'],
    ['work_ns', 'Running, or waiting for devices', 'time'],
    ['path_ns', 'On the critical path', 'time'],
  ],
  lock: [
    ['number', 'Objects', 'number'],
    ['waits', 'Waits', 'number'],
    ['waited_ns', 'Waited', 'time'],
    ['taken', 'Taken', 'number'],
    ['held_ns', 'Held', 'time'],
    ['path_ns', 'On the critical path while others waited', 'time'],
    ['saved_ns', 'Cost of contention', 'time'],
  ],
  function: [
    ['path_ns', 'On the critical path', 'time'],
    ['work_ns', 'Running, or waiting for devices', 'time'],
  ],
};

function valueRow(change, name, measure) {
  const {signed} = MEASURES[measure];
  const cell = (side) =>
    h('td', {class: 'number'}, value(change[side].median, spreadWords(change[side], measure)));
  const differs = change.marked && change.delta !== 0;
  return h(
    'tr',
    {class: differs ? 'differs' : null},
    h('th', {scope: 'row'}, name),
    cell('before'),
    cell('after'),
    h('td', {class: 'number'}, change.delta === 0 ? '–' : signed(change.delta)),
    h('td', {class: 'number'}, change.delta === 0 ? '' : signedPercent(change)),
    h('td', {}, arrow(change.delta, differs), change.noise && change.delta !== 0 ? 'noise' : null),
  );
}

function fact(name, ...words) {
  return [h('dt', {}, name), h('dd', {}, words)];
}

function placeFacts(name, place) {
  const line = lineWords(place);
  return [
    name && fact('Function', h('code', {}, name)),
    line && fact('Source', h('code', {}, line)),
    place && fact('Address', h('code', {title: place.module}, addressWords(place))),
  ];
}

function stackFacts(stacks) {
  const same = JSON.stringify(stacks.before) === JSON.stringify(stacks.after);
  const sides = {before: 'Created at, before', after: 'Created at, after'};
  return Object.entries(same ? {after: 'Created at'} : sides)
    .filter(([side]) => stacks[side].length > 0)
    .map(([side, title]) =>
      h('div', {}, h('h4', {}, title), h('ol', {class: 'stack'}, stacks[side].map(frameItem))),
    );
}

function frameItem(frame) {
  return h(
    'li',
    {class: frame.inlined ? 'inlined' : null},
    frame.function
      ? [h('span', {class: 'function', title: frame.function}, shortFunction(frame.function)), ' ']
      : null,
    h(
      'span',
      {class: 'place', title: frame.file ?? frame.module},
      lineWords(frame) ?? addressWords(frame),
    ),
    frame.inlined ? h('span', {class: 'tag'}, 'inlined') : null,
  );
}

function keyFacts(keys) {
  if (keys.before && keys.before === keys.after)
    return fact('Identity', h('code', {}, keys.before));
  return ['before', 'after']
    .filter((side) => keys[side])
    .map((side) => fact(`Identity ${side}`, h('code', {}, keys[side])));
}

/** Everything about an item. `linked` adds a link to its row in its own table. */
export function subjectDetails(diff, kind, index, linked) {
  const it = diff[LISTS[kind]][index];
  const place = kind === 'function' ? it.place : it.function_place;
  const name = kind === 'function' ? it.name : it.function;
  return h(
    'div',
    {class: 'opened'},
    h(
      'dl',
      {class: 'facts'},
      kind === 'lock'
        ? [fact('Kind', it.kind ?? 'not known'), fact('Name', h('code', {}, it.name ?? 'none'))]
        : kind === 'threads' && it.process !== null
          ? fact('Program', h('code', {}, it.process))
          : placeFacts(name, place),
      kind === 'threads' && it.name ? fact('Name', h('code', {}, it.name)) : null,
      kind === 'threads' ? keyFacts(it.keys) : null,
    ),
    h(
      'div',
      {class: 'scroll'},
      h(
        'table',
        {class: 'plain measures'},
        tableHead('', '#Before', '#After', '#Change', '#', ''),
        h(
          'tbody',
          {},
          VALUES[kind].map(([field, words, measure]) => valueRow(it[field], words, measure)),
        ),
      ),
    ),
    it.creation && it.process === null ? h('div', {class: 'pair'}, stackFacts(it.creation)) : null,
    linked && kind !== 'function'
      ? h(
          'p',
          {},
          h(
            'a',
            {href: linkTo({view: LISTS[kind], open: withRow(`${LISTS[kind]}-${index}`), q: null})},
            `Show it in the table of ${LISTS[kind]}`,
          ),
        )
      : null,
  );
}
