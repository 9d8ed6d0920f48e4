// Numbers and names as people read them.

const UNITS = [
  ['s', 1e9],
  ['ms', 1e6],
  ['µs', 1e3],
  ['ns', 1],
];

/** A length of time with three significant digits: `1.23 ms`. */
export function duration(ns) {
  if (ns === null || ns === undefined) return 'unknown';
  if (ns <= 0) return '0';
  for (const [unit, size] of UNITS) {
    const value = ns / size;
    if (value >= 0.9995 || size === 1) {
      const digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
      return `${value.toFixed(size === 1 ? 0 : digits)} ${unit}`;
    }
  }
  return '0';
}

/** A moment in seconds, as precisely as a span of this length needs. */
export function moment(ns, span) {
  const digits = Math.max(0, Math.min(9, Math.ceil(11 - Math.log10(Math.max(span, 1)))));
  return `${(ns / 1e9).toFixed(digits)} s`;
}

/** A part of a whole in percent. */
export function percent(part, whole) {
  if (!(whole > 0)) return '–';
  const value = (100 * part) / whole;
  return `${value >= 9.95 || value === 0 ? value.toFixed(0) : value.toFixed(1)} %`;
}

/** A whole number with separators between thousands. */
export function count(number) {
  return String(number).replace(/\B(?=(\d{3})+(?!\d))/g, ',');
}

/** A number and its noun: `1 thread`, `2 threads`. */
export function counted(number, noun, nouns) {
  return `${count(number)} ${number === 1 ? noun : (nouns ?? noun + 's')}`;
}

/**
 * A function without its parameters, and with `levels` levels of its template arguments. Those
 * below become `…`.
 */
function withArguments(name, levels) {
  // GCC writes `main()::<lambda(int)>`, which are no template arguments.
  const lambdas = levels > 0 ? name : name.replace(/<lambda\(/g, '{lambda}<(');
  let short = '';
  // True for each open bracket that is shown.
  const open = [];
  for (const character of lambdas.replace(/operator(<<|<=>|<=|<|>>|>=|>|->|\(\))/g, 'operator')) {
    const shown = open.at(-1) ?? true;
    if (character === '<' || character === '(') {
      const isParameters = character === '(' && open.length === 0;
      open.push(shown && !isParameters && open.length < levels);
      if (open.at(-1)) short += character;
      else if (shown && open.length > 1) short += `${character}…`;
    } else if (character === '>' || character === ')') {
      const wasShown = open.pop();
      if (wasShown || (open.length > 0 && open.at(-1))) short += character;
    } else if (shown) short += character;
  }
  short = short.replace(/ (const|volatile)$/, '').trim();
  return short.length > 1 ? short : name;
}

const MAX_LEVELS = 6;

/** The names of functions that would be shown as another function is, and what to show instead. */
const apart = new Map();

/** Notes the functions of the page, so that those with one short name are told apart. */
export function tellApart(names) {
  const byShort = new Map();
  for (const name of new Set(names)) {
    if (!name) continue;
    const short = withArguments(name, 0);
    byShort.set(short, [...(byShort.get(short) ?? []), name]);
  }
  for (let same of byShort.values()) {
    if (same.length < 2) continue;
    for (const name of same) apart.set(name, name);
    for (let levels = 1; levels <= MAX_LEVELS && same.length > 0; levels += 1) {
      const longer = same.map((name) => withArguments(name, levels));
      const isOwn = (words) => longer.indexOf(words) === longer.lastIndexOf(words);
      longer.forEach((words, at) => isOwn(words) && apart.set(same[at], words));
      same = same.filter((_, at) => !isOwn(longer[at]));
    }
  }
}

/** A function without parameters, and without template arguments unless these tell it apart. */
export function shortFunction(name) {
  return name && (apart.get(name) ?? withArguments(name, 0));
}

/** A place in a module, for a function without a name: `pigz+0x11250`. */
export function addressWords({module, svma}) {
  const address = `0x${svma.toString(16)}`;
  return module === '[unknown]' ? address : `${baseName(module)}+${address}`;
}

/** What a function is called: its name, or else its place. Null if neither is known. */
export function functionName(name, place) {
  return shortFunction(name) || (place ? addressWords(place) : null);
}

const NOUNS = {
  rwlock: 'read-write lock',
  cond: 'condition variable',
  sem: 'semaphore',
  once: 'once control',
  join: 'thread',
};

/** What a kind of object is called. */
export function kindNoun(kind) {
  return NOUNS[kind] ?? kind ?? 'object';
}

/** The last component of a path. */
export function baseName(path) {
  return path.slice(path.lastIndexOf('/') + 1) || path;
}

/** Text that is cut in its middle when it is longer than `length`. */
export function shortened(text, length) {
  if (text.length <= length) return text;
  const half = Math.floor((length - 1) / 2);
  return `${text.slice(0, length - 1 - half)}…${text.slice(-half)}`;
}

/**
 * The name of an object in at most `length` characters. Keeps the end, which tells objects of one
 * place apart, and the last components of paths: `…THD from …create_thd+0x164`.
 */
export function shortenedName(name, length) {
  if (name.length <= length) return name;
  let plain = name;
  for (let before = ''; before !== plain; plain = plain.replace(/<[^<>]*>/g, '')) before = plain;
  const short = plain.split(' ').map((word) => word.replace(/^.*::/, '…')).join(' ');
  if (short.length <= length) return short;
  const place = short.replace(/^.*? in /, '');
  if (place.length <= length) return place;
  const first = Math.floor((length - 1) / 3);
  return `${place.slice(0, first)}…${place.slice(first + 1 - length)}`;
}
