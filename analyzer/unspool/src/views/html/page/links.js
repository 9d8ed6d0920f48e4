// Links between the views: threads, objects, moments, source lines, stacks.
import {addressWords, baseName, kindNoun, moment, shortFunction} from './format.js';
import {h} from './dom.js';
import {linkTo, selection} from './location.js';
import {threadName} from './groups.js';

/** A link to a thread in the present view. */
export function threadLink(rec, thread, view) {
  if (!rec.all[thread]) return h('span', {}, 'unknown thread');
  const {tid} = rec.all[thread];
  return h(
    'a',
    {
      class: 'thread',
      href: linkTo({view: view ?? selection().view, thread, object: null, span: null, path: null}),
    },
    `${threadName(rec, thread)}${tid === null ? '' : ` ${tid}`}`,
  );
}

/** What an object is called. */
export function objectName(object) {
  return sharedName(object) + objectNumber(object);
}

/** The name of an object, which others may have, too. */
export function sharedName(object) {
  return object.name ?? `at 0x${object.address.toString(16)}`;
}

/** What tells an object apart from others of its kind and name: ` #2`. */
export function objectNumber({number}) {
  return number ? ` #${number}` : '';
}

/** A link to an object. */
export function objectLink(rec, index, view) {
  const object = rec.allObjects[index];
  if (!object) return h('span', {}, 'unknown object');
  return h(
    'a',
    {
      class: 'object',
      href: linkTo({view: view ?? 'sync', object: index, thread: null, span: null, path: null, order: null}),
    },
    h('span', {class: 'kind'}, kindNoun(object.kind)),
    ' ',
    objectName(object),
  );
}

/** What the threads of an identity are called. */
export function groupName(rec, key) {
  return rec.groups.byKey.get(key)?.label ?? key.slice(0, 6);
}

/** A link to the threads of an identity. */
export function groupLink(rec, key) {
  const href = linkTo({view: 'threads', group: key, object: null});
  return h('a', {href, title: rec.groups.byKey.get(key)?.title}, groupName(rec, key));
}

/** A link to a moment or a range of the timeline, with some time around it. */
export function momentLink(rec, from, to, changes, words) {
  const margin = Math.max((to - from) * 2, rec.end / 1000);
  const zoom = [Math.max(0, from - margin), Math.min(rec.end, to + margin)];
  const text = words ?? moment(from, rec.end / 100);
  return h('a', {href: linkTo({view: 'timeline', zoom, ...changes})}, text);
}

/** A link to a span of a thread in the timeline. */
export function spanLink(rec, thread, span, words) {
  const at = span - rec.spans.first[thread];
  const changes = {thread, span: at, object: null};
  return momentLink(rec, rec.spans.from[span], rec.spans.to[span], changes, words);
}

/** The place of a frame as a link to the source view. */
export function placeLink(rec, frame) {
  if (!frame.file)
    return h(
      'span',
      {class: 'place', title: frame.module},
      addressWords(frame),
    );
  const text = `${baseName(frame.file)}${frame.line === null ? '' : `:${frame.line}`}`;
  return h(
    'a',
    {
      class: 'place',
      title: frame.file,
      href: linkTo({view: 'source', file: frame.file, line: frame.line}),
    },
    text,
  );
}

function functionAndPlace(rec, frame) {
  const {function: name} = frame;
  const called = name && h('span', {class: 'function', title: name}, shortFunction(name));
  return [called && [called, ' '], placeLink(rec, frame)];
}

/** A stack as a list, innermost first. */
export function stackList(rec, frames, truncated) {
  if (frames.length === 0) return h('p', {class: 'quiet'}, 'No stack was recorded.');
  return h(
    'ol',
    {class: 'stack'},
    frames.map((frame) =>
      h(
        'li',
        {class: frame.inlined ? 'inlined' : null},
        functionAndPlace(rec, frame),
        frame.inlined ? h('span', {class: 'tag'}, 'inlined') : null,
        frame.provenance === 'scan'
          ? h('span', {class: 'tag', title: 'found by searching the stack'}, 'guess')
          : null,
      ),
    ),
    truncated ? h('li', {class: 'quiet'}, `The stack ends here: ${truncated}`) : null,
  );
}

/** Two call paths beside each other, each with a title; a path may be unknown. */
export function stackPair(rec, ...sides) {
  const side = ([title, path]) =>
    h(
      'section',
      {},
      h('h5', {}, title),
      path
        ? stackList(rec, rec.stackOf(path.frames), path.truncated)
        : h('p', {class: 'quiet'}, 'Not recorded.'),
    );
  return h('div', {class: 'pair'}, sides.map(side));
}

/** The first frame of a stack that is not the C library's, or the first at all. */
export function callerOf(frames) {
  const inner = /\/(libc|libpthread|libstdc\+\+|ld-linux|ld-musl)[^/]*$/;
  const named = frames.filter(
    (frame) => !inner.test(frame.module) && !/^(std::|__|pthread_|sem_)/.test(frame.function ?? ''),
  );
  return named[0] ?? frames[1] ?? frames[0] ?? null;
}

/** A frame in a line. */
export function frameLine(rec, frame) {
  if (!frame) return h('span', {class: 'quiet'}, 'not known');
  return h(
    'span',
    {class: 'frame'},
    functionAndPlace(rec, frame),
  );
}

/** A histogram by powers of two of nanoseconds. */
export function histogram(lengths, label) {
  const bins = lengths.histogram;
  const first = bins.findIndex((number) => number > 0);
  if (first < 0) return null;
  const most = Math.max(...bins);
  const unit = (at) =>
    at >= 30
      ? `${2 ** (at - 30)} s`
      : at >= 20
        ? `${2 ** (at - 20)} ms`
        : at >= 10
          ? `${2 ** (at - 10)} µs`
          : `${2 ** at} ns`;
  return h(
    'figure',
    {class: 'histogram'},
    h('figcaption', {}, label),
    h(
      'div',
      {
        class: 'bins',
        role: 'img',
        'aria-label': `${label}: ${bins
          .map((number, at) => (number ? `${number} from ${unit(at)}` : null))
          .filter(Boolean)
          .join(', ')}`,
      },
      bins.slice(first).map((number, at) =>
        h(
          'span',
          {
            class: 'bin',
            title: `${number} from ${unit(at + first)} to ${unit(at + first + 1)} (about)`,
          },
          h('span', {
            class: 'column',
            style: {height: `${number ? Math.max(3, (100 * number) / most) : 0}%`},
          }),
        ),
      ),
    ),
    h('div', {class: 'ends'}, h('span', {}, unit(first)), h('span', {}, unit(bins.length))),
  );
}
