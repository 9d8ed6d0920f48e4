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

/** A function without its template arguments and parameters. */
export function shortFunction(name) {
  if (!name) return name;
  let short = '';
  let depth = 0;
  // GCC writes `main()::<lambda(int)>`, which are no template arguments.
  const lambdas = name.replace(/<lambda\(/g, '{lambda}<(');
  for (const character of lambdas.replace(/operator(<<|<=>|<=|<|>>|>=|>|->|\(\))/g, 'operator')) {
    if (character === '<' || character === '(') depth += 1;
    else if (character === '>' || character === ')') depth -= 1;
    else if (depth === 0) short += character;
  }
  short = short.replace(/ (const|volatile)$/, '').trim();
  return short.length > 1 ? short : name;
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
