// Opens the comparison and shows all its sections, at the one that the link names.
import {tellApart} from './format.js';
import {h} from './dom.js';
import {openPage, skipLink, themeButton} from './opening.js';
import {linkTo, onSelection, select, selection} from './location.js';
import {openRows} from './table_rows.js';
import {headline} from './diff_headline.js';
import {effectsSection, objectsSection, threadsSection} from './diff_sections.js';
import {pathSection} from './diff_path.js';
import {focusRow} from './table.js';

const SECTIONS = {
  effects: ['Changes', effectsSection],
  threads: ['Threads', threadsSection],
  objects: ['Objects', objectsSection],
  path: ['Critical path', pathSection],
};

class DiffPage {
  constructor(data) {
    const {before, after} = data.diff.programs;
    this.name = before === after ? after : `${before} → ${after}`;
    this.sections = Object.entries(SECTIONS).map(([name, [, make]]) => ({
      name,
      choices: null,
      ...make(data.diff, data),
      tools: h('span', {class: 'tools'}),
    }));
    this.tabs = h('nav', {class: 'tabs', 'aria-label': 'Sections'});
    this.filter = h('input', {
      type: 'search',
      placeholder: 'Filter (/)',
      'aria-label': 'Filter all tables',
      oninput: () => select({q: this.filter.value || null}, true),
      onkeydown: (event) => this.filterKey(event),
    });
    this.main = h(
      'main',
      {id: 'view', tabindex: '-1', class: 'diff', onscroll: () => this.follow()},
      h(
        'div',
        {class: 'page'},
        headline(data),
        this.sections.map((section) => this.section(section)),
      ),
    );
    this.element = [
      skipLink(this.main),
      h(
        'div',
        {class: 'top'},
        h('span', {class: 'brand', title: this.name}, this.name || 'Unspool'),
        this.tabs,
        h('div', {class: 'search'}, this.filter),
        themeButton(() => {}),
      ),
      h('div', {class: 'body'}, this.main),
    ];
    document.title = `${this.name} – comparison – Unspool`;
    onSelection((at, before) => this.show(at, before));
    window.addEventListener('keydown', (event) => this.key(event));
  }

  section({name, title, about, tools, table, content}) {
    return h(
      'section',
      {id: `section-${name}`, tabindex: '-1', 'aria-label': title},
      h('div', {class: 'toolbar'}, h('h2', {}, title), tools, table?.status),
      about ? h('p', {class: 'quiet'}, about) : null,
      content,
    );
  }

  /** Draws what the selection changes. The focus stays on the same link. */
  show(at, before) {
    const focused = document.activeElement?.id;
    if (this.filter.value !== (at.q ?? '')) this.filter.value = at.q ?? '';
    for (const {table, choices, tools} of this.sections) {
      table?.update();
      if (choices) tools.replaceChildren(...choices().filter(Boolean));
    }
    this.tabs.replaceChildren(
      ...Object.entries(SECTIONS).map(([name, [title]]) =>
        h(
          'a',
          {id: `tab-${name}`, href: linkTo({view: name}), onclick: () => this.reach(name)},
          title,
        ),
      ),
    );
    if (focused) document.getElementById(focused)?.focus({preventScroll: true});
    if (at.view !== before?.view) this.reach(at.view);
    this.follow();
  }

  /** Scrolls to a section, or to its row that was opened last. */
  reach(name) {
    const section = document.getElementById(`section-${name}`);
    const last = openRows().at(-1);
    const row = last?.startsWith(`${name}-`) ? document.getElementById(`row-${last}`) : null;
    const target = row ?? section;
    target?.scrollIntoView({block: row ? 'center' : 'start'});
    target?.focus({preventScroll: true});
  }

  /**
   * Marks the section at a line that moves over the screen with the page: it is at the top of the
   * screen at the beginning, and at its bottom at the end. So each section can be marked.
   */
  follow() {
    const {scrollTop, scrollHeight, clientHeight} = this.main;
    const part = scrollTop / Math.max(1, scrollHeight - clientHeight);
    const line = this.main.getBoundingClientRect().top + clientHeight * part;
    const passed = this.sections.filter(({name}) => {
      const section = document.getElementById(`section-${name}`);
      return section && section.getBoundingClientRect().top < line;
    });
    const current = (passed.at(-1) ?? this.sections[0]).name;
    for (const tab of this.tabs.children) {
      if (tab.id === `tab-${current}`) tab.setAttribute('aria-current', 'location');
      else tab.removeAttribute('aria-current');
    }
  }

  filterKey(event) {
    if (event.key !== 'Escape') return;
    select({q: null}, true);
    this.filter.blur();
  }

  key(event) {
    const typing = event.target.matches?.('input, select, textarea');
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
    const name = Object.keys(SECTIONS)[Number(event.key) - 1];
    if (event.key === '/') {
      event.preventDefault();
      this.filter.focus();
    } else if (step && focusRow(step)) event.preventDefault();
    else if (event.key === 'Escape') select({open: null});
    else if (name) {
      select({view: name});
      this.reach(name);
    }
  }
}

openPage((bytes) => {
  const data = JSON.parse(new TextDecoder().decode(bytes));
  const {threads, functions} = data.diff;
  tellApart([...threads.map((one) => one.function), ...functions.map((one) => one.name)]);
  const page = new DiffPage(data);
  document.getElementById('app').replaceChildren(...page.element);
  page.show(selection(), null);
  return {diff: data.diff, page};
});
