// The open rows and the order of each table, in the URL's fragment.
import {selection} from './location.js';

// Fragments need no escape for it.
const SEPARATOR = '_';

function list(name) {
  return (selection()[name] ?? '').split(SEPARATOR).filter(Boolean);
}

/** The rows that are open. */
export function openRows() {
  return list('open');
}

/** The open rows and this one. */
export function withRow(id) {
  return [...new Set([...openRows(), id])].join(SEPARATOR);
}

/** The open rows, with this one opened or closed. */
export function toggledRow(id) {
  const rows = openRows();
  return rows.includes(id) ? rows.filter((other) => other !== id).join(SEPARATOR) : withRow(id);
}

/** The column by which a table is sorted, and whether in reverse. */
export function sortOf(table) {
  const found = list('sort').find((sort) => sort.startsWith(`${table}-`));
  const [, column, reversed] = found?.split('-') ?? [];
  return {column: column ?? null, reversed: reversed === 'reversed'};
}

/** The sorts after a click on a column: its order, the reverse, the ranking. */
export function nextSort(table, column) {
  const sort = sortOf(table);
  const others = list('sort').filter((other) => !other.startsWith(`${table}-`));
  if (sort.column !== column) others.push(`${table}-${column}`);
  else if (!sort.reversed) others.push(`${table}-${column}-reversed`);
  return others.join(SEPARATOR);
}
