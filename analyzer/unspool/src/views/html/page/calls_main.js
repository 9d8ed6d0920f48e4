// Opens the call graph: a table of functions, each with its callers and its callees.
import {baseName, count, counted, duration, percent, shortFunction, tellApart} from './format.js';
import {h, shortList} from './dom.js';
import {openPage, skipLink, themeButton} from './opening.js';
import {linkTo, onSelection, select, selection} from './location.js';
import {openRows, withRow} from './table_rows.js';
import {RowTable, focusRow} from './table.js';

const MAX_ENDS_SHOWN = 20;

function functionWords({name, module, file, line}) {
  const place = file ? `${baseName(file)}${line ? `:${line}` : ''}` : module;
  return [
    h('code', {class: 'function', title: name}, shortFunction(name)),
    place ? [' ', h('span', {class: 'place', title: file ?? module}, place)] : null,
  ];
}

/** Goes to a row, if it is drawn. */
function reach(id) {
  const row = document.getElementById(`row-${id}`);
  row?.scrollIntoView({block: 'nearest'});
  row?.focus({preventScroll: true});
}

class CallsPage {
  constructor(data) {
    this.data = data;
    this.callers = data.functions.map(() => []);
    this.callees = data.functions.map(() => []);
    for (const edge of data.edges) {
      this.callers[edge.callee].push(edge);
      if (edge.caller !== null) this.callees[edge.caller].push(edge);
    }
    const heavier = (a, b) => b.total_ns - a.total_ns || b.calls - a.calls;
    for (const edges of [...this.callers, ...this.callees]) edges.sort(heavier);
    this.table = this.makeTable();
    this.filter = h('input', {
      type: 'search',
      placeholder: 'Filter (/)',
      'aria-label': 'Filter the functions',
      oninput: () => select({q: this.filter.value || null}, true),
      onkeydown: (event) => {
        if (event.key !== 'Escape') return;
        select({q: null}, true);
        this.filter.blur();
      },
    });
    this.least = h('input', {
      type: 'number',
      min: '0',
      max: '100',
      step: 'any',
      onchange: () => select({least: Number(this.least.value) > 0 ? this.least.value : null}, true),
    });
    const [title, ...notes] = data.title.split('\n');
    this.main = h(
      'main',
      {id: 'view', tabindex: '-1', class: 'calls'},
      h(
        'div',
        {class: 'page'},
        h(
          'div',
          {class: 'headline'},
          h('h1', {}, title),
          notes.map((note) => h('p', {}, note)),
        ),
        h(
          'div',
          {class: 'toolbar'},
          h('h2', {}, 'Functions'),
          h('label', {class: 'least'}, 'with at least ', this.least, ' %'),
          this.table.status,
        ),
        this.table.element,
      ),
    );
    this.element = [
      skipLink(this.main),
      h(
        'div',
        {class: 'top'},
        h('span', {class: 'brand'}, 'Call graph'),
        h('span', {class: 'tabs'}),
        h('div', {class: 'search'}, this.filter),
        themeButton(() => {}),
      ),
      h('div', {class: 'body'}, this.main),
    ];
    onSelection((at, before) => this.show(at, before));
    window.addEventListener('keydown', (event) => this.key(event));
  }

  makeTable() {
    const {data} = this;
    const sum = (key, title, words, whole) => ({
      key,
      title,
      by: ({sums}) => sums[key],
      cell: ({sums}) =>
        h(
          'td',
          {class: 'sum', 'data-label': title},
          h(
            'span',
            {title: percent(sums[key], whole)},
            h('data', {value: String(sums[key])}, words(sums[key])),
            h(
              'span',
              {class: 'bar', 'aria-hidden': 'true'},
              h('span', {class: 'fill', style: {'flex-basis': `${(100 * sums[key]) / whole}%`}}),
            ),
          ),
        ),
    });
    const times = [
      sum('total_ns', 'Total', duration, data.total_ns),
      sum('self_ns', 'Self', duration, data.total_ns),
    ];
    const columns = [...(data.has_times ? times : []), sum('calls', 'Calls', count, data.calls)];
    const rows = data.functions
      .map((it, at) => ({
        at,
        id: String(at),
        sums: it.sums,
        text: `${it.name} ${it.module ?? ''} ${it.file ?? ''}`,
        name: () => functionWords(it),
      }))
      .filter(({sums}) => sums);
    rows.sort((a, b) => columns[0].by(b) - columns[0].by(a));
    return new RowTable({
      name: 'calls',
      title: 'Function',
      noun: 'function',
      rows,
      columns,
      accepts: ({sums}) => sums.share >= Number(selection().least ?? 0),
      empty: 'No function has this share.',
      details: ({at}) => this.details(at),
    });
  }

  /** The callers and the callees of a function. */
  details(at) {
    const ends = (title, edges, end, none) =>
      h(
        'div',
        {},
        h('h4', {}, title),
        edges.length === 0
          ? h('p', {class: 'quiet'}, none)
          : shortList(
              edges.slice(),
              MAX_ENDS_SHOWN,
              (edge) => this.end(edge, edge[end], at),
              (items) => h('ul', {class: 'rows edges'}, items),
            ),
      );
    return h(
      'div',
      {class: 'opened'},
      h('p', {}, h('code', {class: 'function'}, this.data.functions[at].name)),
      h(
        'div',
        {class: 'pair'},
        ends('Called by', this.callers[at], 'caller', 'No shown function calls it.'),
        ends('Calls', this.callees[at], 'callee', 'It calls no shown function.'),
      ),
    );
  }

  /** One end of an edge, with a link to its row. */
  end(edge, other, at) {
    const it = other === null ? null : this.data.functions[other];
    const name = it === null ? 'code that is not recorded' : functionWords(it);
    const id = `calls-${other}`;
    return h(
      'li',
      {'data-end': String(other)},
      it?.sums && other !== at
        ? h('a', {href: linkTo({open: withRow(id), q: null, least: null}), onclick: () => reach(id)}, name)
        : h('span', {}, name, other === at ? h('span', {class: 'tag'}, 'itself') : null),
      h('data', {class: 'number', value: String(edge.calls)}, counted(edge.calls, 'call')),
      this.data.has_times
        ? h('data', {class: 'number', value: String(edge.total_ns)}, duration(edge.total_ns))
        : null,
    );
  }

  /** Draws what the selection changes, and goes to a row that a link opened. */
  show(at, before) {
    const focused = document.activeElement?.id;
    if (this.filter.value !== (at.q ?? '')) this.filter.value = at.q ?? '';
    if (this.least.value !== (at.least ?? '')) this.least.value = at.least ?? '';
    this.table.update();
    if (focused) document.getElementById(focused)?.focus({preventScroll: true});
    if (at.open !== before?.open) reach(openRows().at(-1));
  }

  key(event) {
    const typing = event.target.matches?.('input, select, textarea');
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (event.key === '/') {
      event.preventDefault();
      this.filter.focus();
    } else if (step && focusRow(step)) event.preventDefault();
    else if (event.key === 'Escape') select({open: null});
  }
}

openPage((bytes) => {
  const data = JSON.parse(new TextDecoder().decode(bytes));
  tellApart(data.functions.map((one) => one.name));
  const page = new CallsPage(data);
  document.getElementById('app').replaceChildren(...page.element);
  page.show(selection(), null);
  return {calls: data, page};
});
