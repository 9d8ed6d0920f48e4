// A table to sort and filter, with rows that open.
import {count, counted} from './format.js';
import {h} from './dom.js';
import {linkTo, selection} from './location.js';
import {nextSort, openRows, sortOf, toggledRow} from './table_rows.js';

const MAX_ROWS_DRAWN = 400;

/** How many rows a filter leaves. */
function filterWords(shown, all, noun, nouns) {
  const words = counted(all, noun, nouns);
  return shown === all ? words : `${count(shown)} of ${words}`;
}

/**
 * A table. `name` is its place in the fragment. `rows` have an `id`, `text` for the filter and
 * `name`. `columns` after the name have `key`, `title`, `by` (what to sort by, the largest first)
 * and `cell`. `details` draws an opened row. `accepts` may hide rows, and `empty` says why all are.
 */
export class RowTable {
  constructor({name, title, noun, nouns, rows, columns, details, accepts, empty}) {
    Object.assign(this, {name, rows, details, noun, nouns});
    this.empty = empty ?? 'Nothing.';
    this.accepts = accepts ?? (() => true);
    this.columns = [{key: 'name', title}, ...columns];
    this.status = h('p', {class: 'quiet', role: 'status'});
    this.head = h('tr', {});
    this.body = h('tbody', {});
    this.element = h(
      'div',
      {class: 'scroll'},
      h('table', {class: 'sortable', id: `table-${name}`}, h('thead', {}, this.head), this.body),
    );
  }

  /** The rows that the fragment selects, in its order. */
  selected() {
    const words = (selection().q ?? '').toLowerCase();
    const rows = this.rows.filter(
      (row) => this.accepts(row) && row.text.toLowerCase().includes(words),
    );
    const {column, reversed} = sortOf(this.name);
    const sorted = this.columns.find((other) => other.key === column);
    if (!sorted) return rows;
    if (sorted.by) rows.sort((a, b) => sorted.by(b) - sorted.by(a));
    else rows.sort((a, b) => (a.text < b.text ? -1 : a.text > b.text ? 1 : 0));
    return reversed ? rows.reverse() : rows;
  }

  /** Draws the table anew. */
  update() {
    const rows = this.selected();
    const open = openRows();
    const accepted = this.rows.filter(this.accepts).length;
    this.status.textContent = filterWords(rows.length, accepted, this.noun, this.nouns);
    this.head.replaceChildren(...this.columns.map((column) => this.headCell(column)));
    const isOpen = (row) => open.includes(`${this.name}-${row.id}`);
    const shown = rows.filter((row, at) => at < MAX_ROWS_DRAWN || isOpen(row));
    this.body.replaceChildren(...shown.flatMap((row) => this.row(row, isOpen(row))));
    const missing = rows.length - shown.length;
    if (missing > 0) this.body.append(this.wide(`Use the filter to see ${missing} more rows.`));
    const none = accepted > 0 ? 'No row matches.' : this.empty;
    if (rows.length === 0) this.body.append(this.wide(none));
  }

  wide(...content) {
    return h('tr', {class: 'inside'}, h('td', {colspan: String(this.columns.length)}, content));
  }

  headCell({key, title, by, number}) {
    const {column, reversed} = sortOf(this.name);
    const chosen = column === key;
    const ascending = Boolean(by) === reversed;
    return h(
      'th',
      {
        scope: 'col',
        class: number ? 'number' : null,
        'aria-sort': chosen ? (ascending ? 'ascending' : 'descending') : null,
      },
      h(
        'a',
        {id: `sort-${this.name}-${key}`, href: linkTo({sort: nextSort(this.name, key)})},
        title,
        chosen ? (ascending ? ' ↑' : ' ↓') : '',
      ),
    );
  }

  row(row, open) {
    const id = `${this.name}-${row.id}`;
    const toggle = h(
      'a',
      {
        class: 'toggle',
        id: `row-${id}`,
        href: linkTo({open: toggledRow(id)}),
        'aria-expanded': String(open),
      },
      h('span', {class: 'twisty', 'aria-hidden': 'true'}, open ? '▾' : '▸'),
      row.name(),
    );
    const cells = this.columns.slice(1).map((column) => column.cell(row));
    const main = h(
      'tr',
      {class: [open ? 'open' : '', row.faint ? 'faint' : ''].join(' '), 'data-row': id},
      h('th', {scope: 'row'}, toggle),
      cells,
    );
    return open ? [main, this.wide(this.details(row))] : [main];
  }
}

/** Moves the focus to the next or the previous row, if a row has it. */
export function focusRow(step) {
  const rows = [...document.querySelectorAll('.sortable .toggle')];
  const at = rows.indexOf(document.activeElement);
  if (at < 0 || !rows[at + step]) return false;
  rows[at + step].focus();
  return true;
}
