// Source files with what happened on their lines.
import {baseName, count, counted, duration, kindNoun} from './format.js';
import {h} from './dom.js';
import {linkTo} from './location.js';
import {callerOf, objectName} from './links.js';

/** By file and line: creations, threads that begin there, and uses of objects. */
function happenings(rec) {
  const files = new Map();
  const at = (file, line) => {
    if (!file || line === null) return null;
    if (!files.has(file)) files.set(file, new Map());
    const lines = files.get(file);
    if (!lines.has(line))
      lines.set(line, {creates: [], begins: [], through: new Set(), uses: [], waited: 0});
    return lines.get(line);
  };
  rec.threads.forEach((thread, index) => {
    if (thread.function_place)
      at(thread.function_place.file, thread.function_place.line)?.begins.push(index);
    rec.stackOf(thread.creation).forEach((frame, depth) => {
      const line = at(frame.file, frame.line);
      if (depth === 0) line?.creates.push(index);
      else line?.through.add(index);
    });
  });
  rec.objects.forEach((object, index) =>
    object.uses.forEach((use) => {
      const frame = callerOf(rec.stackOf(rec.paths[use.path].frames));
      const line = frame && at(frame.file, frame.line);
      if (!line) return;
      line.uses.push([index, use]);
      line.waited += use.waits.total_ns;
    }),
  );
  return files;
}

function noteOf(rec, line) {
  const words = [];
  const threads = (list) =>
    h(
      'a',
      {
        href: linkTo({
          view: 'threads',
          group: rec.threads[list[0]].key,
          thread: list.length === 1 ? list[0] : null,
        }),
      },
      counted(list.length, 'thread'),
    );
  if (line.creates.length > 0) words.push(['creates ', threads(line.creates)]);
  if (line.begins.length > 0)
    words.push([
      threads(line.begins),
      ' begin here'.replace('begin', line.begins.length === 1 ? 'begins' : 'begin'),
    ]);
  if (line.through.size > 0 && line.creates.length === 0)
    words.push(['leads to ', counted(line.through.size, 'creation')]);
  const objects = new Map();
  for (const [object, use] of line.uses) {
    const sum = objects.get(object) ?? {operations: new Set(), calls: 0, waited: 0, waits: 0};
    sum.operations.add(use.operation);
    sum.calls += use.calls;
    sum.waited += use.waits.total_ns;
    sum.waits += use.waits.count;
    objects.set(object, sum);
  }
  const most = [...objects].sort((a, b) => b[1].waited - a[1].waited || b[1].calls - a[1].calls);
  for (const [object, sum] of most.slice(0, 2)) {
    words.push([
      `${[...sum.operations].join(', ')} `,
      h(
        'a',
        {href: linkTo({view: 'sync', object, thread: null})},
        `${kindNoun(rec.objects[object].kind)} ${objectName(rec.objects[object])}`,
      ),
      ` ${count(sum.calls)}×`,
      sum.waits > 0 ? `, waited ${count(sum.waits)}× ${duration(sum.waited)}` : '',
    ]);
  }
  if (most.length > 2) words.push(`and ${most.length - 2} more objects`);
  return words.map((part, index) => [index ? '; ' : '', part]);
}

/** Draws a source file, or the list of them. */
export function sourceView(rec, at) {
  rec.happenings ??= happenings(rec);
  const texts = new Map(rec.sources.map((source) => [source.path, source]));
  const weight = (lines) =>
    [...lines.values()].reduce(
      (sum, line) => sum + line.waited / 1e6 + line.creates.length + line.uses.length / 10,
      0,
    );
  const files = [...rec.happenings].sort(
    (a, b) => texts.has(b[0]) - texts.has(a[0]) || weight(b[1]) - weight(a[1]),
  );
  const chosen = at.file ?? files[0]?.[0];
  if (!chosen) {
    return h(
      'div',
      {class: 'page'},
      h('h1', {}, 'Source'),
      h(
        'p',
        {},
        'No stack of this recording names a source file. Debug information adds them: compile with -g, or name debug files with --debug-dir.',
      ),
    );
  }
  const lines = rec.happenings.get(chosen) ?? new Map();
  const source = texts.get(chosen);
  const text = source ? source.text.replace(/\n$/, '').split('\n') : null;
  const most = Math.max(1, ...[...lines.values()].map((line) => line.waited));
  const row = (number, code) => {
    const line = lines.get(number);
    return h(
      'tr',
      {
        id: `line-${number}`,
        class: `${line ? 'marked' : ''}${at.line === number ? ' selected' : ''}`,
      },
      h(
        'td',
        {class: 'line'},
        h('a', {href: linkTo({view: 'source', file: chosen, line: number})}, number),
      ),
      h(
        'td',
        {
          class: 'heat',
          style: line?.waited ? {'--heat': String(Math.sqrt(line.waited / most))} : null,
        },
        line?.waited ? duration(line.waited) : '',
      ),
      h('td', {class: 'code'}, h('code', {}, code)),
      h('td', {class: 'note'}, line ? noteOf(rec, line) : null),
    );
  };
  const rows = text
    ? text.map((code, index) => row(index + 1, code))
    : [...lines.keys()].sort((a, b) => a - b).map((number) => row(number, ''));
  if (at.line !== undefined)
    setTimeout(
      () => document.getElementById(`line-${at.line}`)?.scrollIntoView({block: 'center'}),
      0,
    );
  return h(
    'div',
    {class: 'page source'},
    h(
      'div',
      {class: 'toolbar'},
      h('h1', {}, 'Source'),
      h(
        'select',
        {
          'aria-label': 'File',
          onchange: (event) => {
            location.hash = linkTo({file: event.target.value, line: null});
          },
        },
        (files.some(([file]) => file === chosen) ? files : [[chosen], ...files]).map(([file]) =>
          h(
            'option',
            {value: file, selected: file === chosen},
            `${baseName(file)} ${texts.has(file) ? '' : '(text not embedded) '}– ${file}`,
          ),
        ),
      ),
    ),
    source?.changed
      ? h(
          'p',
          {class: 'warn'},
          'The file was changed after the recording began, so its lines may differ from those that ran.',
        )
      : null,
    text
      ? null
      : h(
          'p',
          {class: 'quiet'},
          'The report does not contain this file, so only line numbers are shown.',
        ),
    h(
      'div',
      {class: 'scroll'},
      h(
        'table',
        {class: 'listing'},
        h(
          'thead',
          {class: 'hidden'},
          h(
            'tr',
            {},
            ['Line', 'Waited', 'Code', 'What happened'].map((name) =>
              h('th', {scope: 'col'}, name),
            ),
          ),
        ),
        h('tbody', {}, rows),
      ),
    ),
  );
}
