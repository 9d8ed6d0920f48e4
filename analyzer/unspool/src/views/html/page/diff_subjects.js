// What an effect or a row is about: threads, an object or a function.
import {functionName, kindNoun} from './format.js';
import {h} from './dom.js';

/** The lists of a comparison, by the kind of an effect. */
export const LISTS = {threads: 'threads', lock: 'objects', function: 'functions'};

const KIND_WORDS = {threads: 'threads', lock: 'lock', function: 'function'};

const NO_FUNCTION = 'of unknown function';

/** What kind of thing a subject is. */
function kindWord(kind, it) {
  return kind === 'threads' && it.process !== null ? 'process' : KIND_WORDS[kind];
}

/** The source line of a place, if it is known. */
export function lineWords(place) {
  if (!place?.file) return null;
  return `${place.file}${place.line === null ? '' : `:${place.line}`}`;
}

/** What threads of one identity are called. */
export function threadsTitle(threads) {
  const more = [threads.distinction, threads.identities > 1 ? '†' : null].filter(Boolean).join(' ');
  if (threads.main) return {title: 'main', name: '', more};
  if (threads.process !== null) return {title: threads.process, name: '', more};
  const title = functionName(threads.function, threads.function_place) ?? NO_FUNCTION;
  if (threads.name && title.startsWith('std::')) return {title: threads.name, name: '', more};
  return {title, name: threads.name === title ? '' : threads.name, more};
}

/** The title of threads, and what distinguishes them from others with this title. */
export function threadsWords(threads) {
  const {title, more} = threadsTitle(threads);
  return more ? `${title} ${more}` : title;
}

/** What an object is called. */
export function changedObjectName(object) {
  const number = Math.max(object.number.before.median, object.number.after.median);
  const process = object.process === null ? '' : ` of process ${object.process}`;
  return `${number > 1 ? `${number} × ` : ''}${object.name ?? 'without a name'}${process}`;
}

/** The words of a subject, for sorting and for the filter. */
export function subjectText(diff, kind, index) {
  const it = diff[LISTS[kind]][index];
  if (kind === 'lock') return `${kindNoun(it.kind)} ${it.name ?? ''} ${it.process ?? ''}`;
  if (kind === 'function') return `function ${it.name ?? ''} ${lineWords(it.place) ?? ''}`;
  const {title, name, more} = threadsTitle(it);
  const {before, after} = it.keys;
  const words = [title, name, more, it.function, lineWords(it.function_place), before, after];
  return `${kindWord(kind, it)} ${words.filter(Boolean).join(' ')}`;
}

/** A subject's name. */
export function subjectName(diff, kind, index) {
  const it = diff[LISTS[kind]][index];
  if (kind === 'lock')
    return [
      h('span', {class: 'kind'}, kindNoun(it.kind)),
      ' ',
      h('span', {class: 'object'}, changedObjectName(it)),
    ];
  const {title, name, more} =
    kind === 'threads' ? threadsTitle(it) : {title: functionName(it.name, it.place) ?? NO_FUNCTION};
  return [
    h('span', {class: 'kind'}, kindWord(kind, it)),
    ' ',
    h('span', {class: 'function'}, title),
    name ? h('span', {class: 'quiet'}, ` "${name}"`) : null,
    more ? h('span', {class: 'quiet'}, ` ${more}`) : null,
  ];
}

/** What became of the threads of one identity. */
export function statusOf(threads) {
  const {before, after, delta, noise} = threads.number;
  if (before.max === 0) return 'new';
  if (after.max === 0) return 'gone';
  if (noise || delta === 0) return '';
  return delta > 0 ? 'more' : 'fewer';
}

const STATUS_SIGNS = {new: '+', gone: '−', more: '▲', fewer: '▼'};

/** A tag with the status; nothing for as many threads as before. */
export function statusTag(status) {
  if (!status) return null;
  const sign = h('span', {'aria-hidden': 'true'}, STATUS_SIGNS[status]);
  return h('span', {class: `tag status-${status}`}, sign, ` ${status}`);
}

/** Why an item has an effect. */
export function causeWords(diff, effect) {
  const longer = effect.effect_ns > 0;
  switch (effect.cause) {
    case 'new':
      return 'new';
    case 'gone':
      return 'gone';
    case 'number': {
      const {number, process} = diff.threads[effect.index];
      const noun = process === null ? 'threads' : 'processes';
      return `${number.before.median} → ${number.after.median} ${noun}`;
    }
    case 'contention':
      return longer ? 'more contention' : 'less contention';
    case 'parallelism':
      return `as much work, ${longer ? 'less' : 'more'} of it in parallel`;
    default:
      return longer ? 'more work' : 'less work';
  }
}
