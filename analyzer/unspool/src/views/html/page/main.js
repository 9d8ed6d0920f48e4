// Opens the recording and shows the view that the link names.
import {counted, duration, moment, shortFunction, tellApart} from './format.js';
import {h} from './dom.js';
import {openPage, skipLink, themeButton} from './opening.js';
import {readRecording} from './data.js';
import {linkTo, onSelection, select, selection} from './location.js';
import {groupText, groupTitle, groupThreads, threadName} from './groups.js';
import {objectName} from './links.js';
import {detailsPanel} from './details.js';
import {findingsView} from './findings.js';
import {overview} from './overview.js';
import {threadsView} from './threads.js';
import {Timeline} from './timeline.js';
import {syncView} from './sync.js';
import {flameView} from './flame.js';
import {sourceView} from './source.js';

const VIEWS = {
  overview: ['Overview', overview],
  threads: ['Threads', threadsView],
  timeline: ['Timeline', null],
  sync: ['Sync', syncView],
  stacks: ['Stacks', flameView],
  source: ['Source', sourceView],
  findings: ['Findings', findingsView],
};

/** What a change of needs the view to be drawn anew. */
const DRAWS = [
  'view',
  'thread',
  'object',
  'finding',
  'order',
  'group',
  'file',
  'line',
  'sort',
  'flame',
  'invert',
  'root',
  'open',
  'range',
];

const MAX_HITS = 12;

class Page {
  constructor(rec) {
    this.rec = rec;
    this.timeline = null;
    this.main = h('main', {id: 'view', tabindex: '-1'});
    this.side = h('div', {class: 'side'});
    this.tabs = h('nav', {class: 'tabs', 'aria-label': 'Views'});
    this.chip = h('span', {});
    this.hits = h('ul', {class: 'hits', role: 'listbox', id: 'hits', hidden: true});
    this.search = h('input', {
      type: 'search',
      placeholder: 'Search (/)',
      'aria-label': 'Search threads, objects, functions and files',
      role: 'combobox',
      'aria-controls': 'hits',
      'aria-expanded': 'false',
      oninput: () => this.find(),
      onkeydown: (event) => this.searchKey(event),
      onblur: () => setTimeout(() => this.showHits([]), 200),
    });
    this.element = [
      skipLink(this.main),
      h(
        'div',
        {class: 'top'},
        h('span', {class: 'brand', title: rec.recording.product}, rec.target.name || 'Unspool'),
        this.tabs,
        this.chip,
        h('div', {class: 'search'}, this.search, this.hits),
        themeButton(() => this.restyle()),
      ),
      h('div', {class: 'body'}, this.main, this.side),
    ];
    onSelection((at, before) => this.show(at, before));
    window.addEventListener('keydown', (event) => this.key(event));
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.restyle());
  }

  show(at, before) {
    const view = at.view in VIEWS ? at.view : 'overview';
    const here = {...at, view};
    const redraw = !before || DRAWS.some((name) => String(at[name]) !== String(before[name]));
    document.title = `${VIEWS[view][0]} – ${this.rec.target.name || 'recording'} – Unspool`;
    this.tabs.replaceChildren(
      ...Object.entries(VIEWS).map(([name, [title]]) =>
        h(
          'a',
          {
            href: linkTo({
              view: name,
              q: null,
              sort: null,
              finding: null,
              order: null,
              group: null,
              line: null,
              root: null,
            }),
            'aria-current': name === view ? 'page' : null,
          },
          title,
          name === 'findings' && this.rec.findings.length > 0
            ? h('span', {class: 'badge'}, String(this.rec.findings.length))
            : null,
        ),
      ),
    );
    this.chip.replaceChildren(
      ...(at.range
        ? [
            h(
              'span',
              {class: 'chip'},
              `${moment(at.range[0], at.range[1] - at.range[0])} + ${duration(at.range[1] - at.range[0])}`,
              h(
                'button',
                {
                  type: 'button',
                  'aria-label': 'Clear the selected range',
                  onclick: () => select({range: null}),
                },
                '×',
              ),
            ),
          ]
        : []),
    );
    if (view === 'timeline') {
      this.timeline ??= new Timeline(this.rec);
      const fresh = this.main.firstChild !== this.timeline.element;
      if (fresh) this.main.replaceChildren(this.timeline.element);
      this.timeline.update(here, fresh ? null : before);
    } else if (redraw) {
      const sameView = before && (before.view ?? 'overview') === view;
      const top = this.main.scrollTop;
      this.main.replaceChildren(VIEWS[view][1](this.rec, here));
      this.main.scrollTop =
        sameView && at.object === before.object && at.file === before.file ? top : 0;
    }
    this.main.className = view;
    if (redraw) {
      const panel = detailsPanel(this.rec, here);
      const top = this.side.firstChild?.scrollTop ?? 0;
      this.side.replaceChildren(...(panel ? [panel] : []));
      if (
        panel &&
        before &&
        at.thread === before.thread &&
        at.object === before.object &&
        at.span === before.span
      )
        panel.scrollTop = top;
      document.body.classList.toggle('with-details', panel !== null);
    }
    if (at.span !== before?.span && !redraw) {
      const panel = detailsPanel(this.rec, here);
      this.side.replaceChildren(...(panel ? [panel] : []));
    }
  }

  /** Threads, objects, functions and files that match. */
  matching(words) {
    const {rec} = this;
    const wanted = words.toLowerCase();
    const has = (text) => text && text.toLowerCase().includes(wanted);
    const hits = [];
    const add = (kind, text, href) => hits.push({kind, text, href});
    for (const group of rec.groups.tree)
      if (groupText(group).includes(wanted))
        add(
          rec.all[group.threads[0]].process === undefined ? 'identity' : 'processes',
          `${groupTitle(group)} ${group.more}`,
          linkTo({view: 'threads', group: group.key, thread: null, object: null, span: null}),
        );
    for (let index = 0; index < rec.all.length && hits.length < 40; index += 1) {
      const thread = rec.all[index];
      if (String(thread.tid).startsWith(words) || has(thread.name))
        add(
          'thread',
          `${threadName(rec, index)} ${thread.tid ?? ''}`,
          linkTo({thread: index, object: null, span: null}),
        );
    }
    rec.allObjects.forEach((object, index) => {
      if (hits.length < 80 && (has(objectName(object)) || has(`0x${object.address.toString(16)}`)))
        add(
          object.kind,
          objectName(object),
          linkTo({view: 'sync', object: index, thread: null, span: null}),
        );
    });
    const seen = new Set();
    for (const frame of rec.frames) {
      if (frame.function && !seen.has(frame.function) && has(frame.function) && hits.length < 120) {
        seen.add(frame.function);
        add(
          'function',
          shortFunction(frame.function),
          frame.file
            ? linkTo({view: 'source', file: frame.file, line: frame.line})
            : linkTo({view: 'stacks', q: frame.function}),
        );
      }
      if (frame.file && !seen.has(frame.file) && has(frame.file) && hits.length < 120) {
        seen.add(frame.file);
        add('file', frame.file, linkTo({view: 'source', file: frame.file, line: null}));
      }
    }
    return hits;
  }

  find() {
    const words = this.search.value.trim();
    this.showHits(words ? this.matching(words) : []);
  }

  showHits(hits) {
    this.hits.hidden = hits.length === 0;
    this.search.setAttribute('aria-expanded', String(hits.length > 0));
    this.hits.replaceChildren(
      ...hits
        .slice(0, MAX_HITS)
        .map((hit) =>
          h(
            'li',
            {role: 'option'},
            h(
              'a',
              {href: hit.href, tabindex: '-1', onclick: () => this.showHits([])},
              h('span', {class: 'kind'}, hit.kind),
              ' ',
              hit.text,
            ),
          ),
        ),
      ...(hits.length > MAX_HITS
        ? [
            h(
              'li',
              {class: 'quiet'},
              `${counted(hits.length - MAX_HITS, 'more match', 'more matches')}`,
            ),
          ]
        : []),
    );
  }

  searchKey(event) {
    const links = [...this.hits.querySelectorAll('a')];
    const now = links.findIndex((link) => link.classList.contains('chosen'));
    if (event.key === 'Escape') {
      this.search.value = '';
      this.showHits([]);
      this.search.blur();
    } else if (event.key === 'Enter' && links.length > 0) {
      location.hash = links[Math.max(now, 0)].getAttribute('href');
      this.showHits([]);
    } else if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      const next = Math.min(
        Math.max(now + (event.key === 'ArrowDown' ? 1 : -1), 0),
        links.length - 1,
      );
      links.forEach((link, at) => link.classList.toggle('chosen', at === next));
    } else return;
    event.preventDefault();
  }

  key(event) {
    const typing = event.target.matches?.('input, select, textarea');
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const number = Number(event.key);
    if (event.key === '/') {
      event.preventDefault();
      this.search.focus();
    } else if (event.key === 'Escape')
      select({
        thread: null,
        object: selection().view === 'sync' ? selection().object : null,
        span: null,
      });
    else if (number >= 1 && number <= 7) select({view: Object.keys(VIEWS)[number - 1]});
  }

  restyle() {
    this.timeline?.restyle();
    if (selection().view !== 'timeline') this.show(selection(), null);
  }
}

openPage((bytes) => {
  const rec = readRecording(bytes);
  const onPath = rec.critical_path?.functions ?? [];
  const named = [...rec.all, ...rec.frames].map((one) => one.function);
  tellApart([...named, ...onPath.map((one) => one.name)]);
  rec.groups = groupThreads(rec);
  const lives = rec.life.slice(0, rec.threads.length);
  rec.alive_ns = lives.reduce((sum, life) => sum + (life ? life[1] - life[0] : 0), 0);
  const page = new Page(rec);
  document.getElementById('app').replaceChildren(...page.element);
  page.show(selection(), null);
  return {rec, page};
});
