// The selection, kept in the URL's fragment: `#view=timeline&thread=3&range=120-240`.

const NUMBERS = ['thread', 'object', 'finding', 'span', 'line', 'lane', 'path', 'order'];
const RANGES = ['range', 'zoom'];
const WORDS = ['view', 'group', 'file', 'q', 'sort', 'flame', 'invert', 'root', 'open', 'only', 'noise', 'least'];

function parse(fragment) {
  const words = new URLSearchParams(fragment.replace(/^#/, ''));
  const at = {};
  for (const name of NUMBERS) {
    const number = Number(words.get(name));
    if (words.has(name) && Number.isSafeInteger(number) && number >= 0) at[name] = number;
  }
  for (const name of RANGES) {
    const [from, to] = (words.get(name) ?? '').split('-').map(Number);
    if (from >= 0 && to > from) at[name] = [from, to];
  }
  for (const name of WORDS) if (words.has(name)) at[name] = words.get(name);
  return at;
}

function fragmentOf(at) {
  const words = new URLSearchParams();
  for (const name of [...WORDS, ...NUMBERS]) {
    const value = at[name];
    if (value !== undefined && value !== null && value !== '') words.set(name, String(value));
  }
  for (const name of RANGES) if (at[name]) words.set(name, at[name].map(Math.round).join('-'));
  return `#${words}`;
}

const listeners = [];
let current = parse(location.hash);

/** The present selection. */
export function selection() {
  return current;
}

/** A link to the present selection with these changes. */
export function linkTo(changes) {
  return fragmentOf({...current, ...changes});
}

/** Changes the selection; `quiet` makes no entry in the history. */
export function select(changes, quiet) {
  const next = linkTo(changes);
  if (next === fragmentOf(current)) return;
  if (quiet) {
    history.replaceState(null, '', next);
    changed();
  } else location.hash = next;
}

/** Calls `listener` with the new and the former selection whenever that changes. */
export function onSelection(listener) {
  listeners.push(listener);
}

function changed() {
  const before = current;
  current = parse(location.hash);
  for (const listener of listeners) listener(current, before);
}

window.addEventListener('hashchange', changed);
