// The timeline: lanes on a canvas, with zoom, pan, selection of spans and of a range.
import {counted, duration, moment} from './format.js';
import {h} from './dom.js';
import {STATE_COUNT, stateLegend} from './states.js';
import {select, selection} from './location.js';
import {groupTitle, threadIds, threadName} from './groups.js';
import {firstSpan} from './range.js';
import {selectSpan, spanWords} from './details.js';
import {RULER, foldedAtFirst, laneAt, laneStates, layOut} from './lanes.js';
import {makeTiles, paintLane} from './paint.js';
import {drawMinimap, drawOver} from './draw.js';
import {pathWords} from './path.js';

const MINIMAP = 44;
const SHORTEST_NS = 20;

export class Timeline {
  constructor(rec) {
    this.rec = rec;
    this.folded = foldedAtFirst(rec);
    this.view = [0, rec.end];
    this.arrows = true;
    this.path = true;
    this.cursor = null;
    this.frames = [];
    this.table = [];
    this.build();
  }

  build() {
    const button = (text, label, act) =>
      h('button', {type: 'button', title: label, 'aria-label': label, onclick: act}, text);
    this.filter = h('input', {
      type: 'search',
      placeholder: 'Filter lanes',
      'aria-label': 'Filter lanes',
      oninput: () => {
        select({q: this.filter.value || null}, true);
      },
    });
    this.canvas = h('canvas', {class: 'lanes-canvas'});
    this.spacer = h('div', {});
    this.scroller = h(
      'div',
      {
        class: 'lanes',
        tabindex: '0',
        role: 'application',
        'aria-label': 'Timeline of all threads',
        'aria-describedby': 'timeline-keys',
      },
      this.canvas,
      this.spacer,
    );
    this.minimap = h('canvas', {
      class: 'minimap',
      role: 'img',
      'aria-label': 'The whole recording; drag to move',
    });
    this.tooltip = h('div', {class: 'tooltip', hidden: true});
    this.live = h('p', {class: 'hidden', 'aria-live': 'polite'});
    const arrows = h('input', {
      type: 'checkbox',
      checked: true,
      onchange: (event) => {
        this.arrows = event.target.checked;
        this.redraw();
      },
    });
    const path = h('input', {
      type: 'checkbox',
      checked: true,
      onchange: (event) => {
        this.path = event.target.checked;
        this.redraw();
      },
    });
    this.where = h('span', {class: 'quiet where'});
    this.element = h(
      'div',
      {class: 'timeline'},
      h(
        'div',
        {class: 'toolbar'},
        h('h1', {}, 'Timeline'),
        button('−', 'Zoom out (-)', () => this.zoom(2)),
        button('+', 'Zoom in (+)', () => this.zoom(0.5)),
        button('All', 'Show the whole recording (0)', () => this.show([0, this.rec.end])),
        button('Fit', 'Zoom to the selection (F)', () => this.fit()),
        button('Fold', 'Fold all groups', () => this.foldAll(true)),
        button('Unfold', 'Unfold all groups', () => this.foldAll(false)),
        this.filter,
        h('label', {}, arrows, ' Arrows'),
        this.rec.path.total > 0 ? h('label', {}, path, ' Critical path') : null,
        this.where,
      ),
      this.minimap,
      this.scroller,
      this.tooltip,
      this.live,
      h(
        'div',
        {class: 'footer'},
        stateLegend(this.rec.kinds),
        h(
          'p',
          {id: 'timeline-keys', class: 'keys'},
          'Ctrl+wheel or + and − zoom. Drag or ← → pan. Drag on the ruler, or Shift+drag, selects a range. ↑ ↓ select a thread, N and P its next and previous wait. F zooms to the selection.',
        ),
      ),
    );
    this.listen();
    new ResizeObserver(() => requestAnimationFrame(() => this.resize())).observe(this.scroller);
  }

  /** The element was put into the page, or what is selected has changed. */
  update(at, before) {
    this.at = at;
    if (this.filter.value !== (at.q ?? '') && document.activeElement !== this.filter)
      this.filter.value = at.q ?? '';
    if (at.zoom && (!before || String(before.zoom) !== String(at.zoom)))
      this.view = this.bounded(at.zoom);
    else if (!at.zoom && before?.zoom) this.view = [0, this.rec.end];
    const thread = at.thread;
    if (thread !== undefined && thread !== before?.thread && this.rec.all[thread]) {
      const group = this.rec.groups.lanes[this.rec.groups.of[thread]];
      if (before?.thread === undefined || this.rec.groups.of[before.thread] !== group.index)
        this.folded.delete(group.index);
    }
    this.lay();
    if (thread !== undefined && thread !== before?.thread) this.reveal(thread);
    this.redraw();
  }

  lay() {
    this.layout = layOut(this.rec, this.folded, this.at?.q);
    const total = this.layout.height + RULER + 8;
    this.spacer.style.height = `${Math.max(0, total - this.scroller.clientHeight)}px`;
  }

  reveal(thread) {
    const lane = this.layout.lanes[this.layout.laneOf[thread]];
    if (!lane || this.scroller.clientHeight === 0) return;
    const room = this.scroller.clientHeight - RULER;
    const top = this.scroller.scrollTop;
    if (lane.y < top || lane.y + lane.height > top + room)
      this.scroller.scrollTop = Math.max(0, lane.y - room / 2);
  }

  resize() {
    const scale = window.devicePixelRatio || 1;
    const [width, height] = [this.scroller.clientWidth, this.scroller.clientHeight];
    if (width === 0 || height === 0) return;
    Object.assign(this, {
      width,
      height,
      scale,
      labels: width < 700 ? 150 : Math.min(260, Math.round(width * 0.22)),
    });
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.minimap.width = Math.round(width * scale);
    this.minimap.style.width = `${width}px`;
    this.minimap.height = Math.round(MINIMAP * scale);
    this.image = null;
    this.small = null;
    this.look = null;
    if (this.at) this.lay();
    this.redraw();
  }

  /** Colours have changed. */
  restyle() {
    this.look = null;
    this.small = null;
    this.redraw();
  }

  redraw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      const began = performance.now();
      this.draw();
      this.frames.push(performance.now() - began);
      if (this.frames.length > 1000) this.frames.shift();
    });
  }

  xOf(ns) {
    return (
      this.labels +
      ((ns - this.view[0]) / (this.view[1] - this.view[0])) * (this.width - this.labels)
    );
  }

  nsOf(x) {
    return (
      this.view[0] +
      ((x - this.labels) / (this.width - this.labels)) * (this.view[1] - this.view[0])
    );
  }

  bounded([from, to]) {
    const length = Math.min(Math.max(to - from, SHORTEST_NS), this.rec.end);
    const begin = Math.min(Math.max(from, 0), this.rec.end - length);
    return [begin, begin + length];
  }

  /** Shows this part of the recording; the link follows when the view rests. */
  show(range) {
    this.view = this.bounded(range);
    this.redraw();
    clearTimeout(this.settling);
    this.settling = setTimeout(() => {
      const whole = this.view[0] === 0 && this.view[1] === this.rec.end;
      if (selection().view === 'timeline') select({zoom: whole ? null : this.view}, true);
    }, 250);
  }

  zoom(factor, around) {
    const [from, to] = this.view;
    const center = around ?? (from + to) / 2;
    this.show([center - (center - from) * factor, center + (to - center) * factor]);
  }

  pan(part) {
    const by = (this.view[1] - this.view[0]) * part;
    this.show([this.view[0] + by, this.view[1] + by]);
  }

  fit() {
    const {at, rec} = this;
    let range = at.range;
    if (at.thread !== undefined && rec.life[at.thread]) {
      const span = this.selectedSpan();
      range = span === null ? rec.life[at.thread] : [rec.spans.from[span], rec.spans.to[span]];
    }
    if (range)
      this.show([range[0] - (range[1] - range[0]) * 0.2, range[1] + (range[1] - range[0]) * 0.2]);
  }

  foldAll(fold) {
    this.folded = new Set(
      fold
        ? this.rec.groups.lanes
            .filter((group) => group.threads.length > 1)
            .map((group) => group.index)
        : [],
    );
    this.lay();
    this.redraw();
  }

  toggle(group) {
    if (!this.folded.delete(group.index)) this.folded.add(group.index);
    this.lay();
    this.redraw();
  }

  selectedSpan() {
    const {at, rec} = this;
    if (at?.thread === undefined || at.span === undefined || !rec.all[at.thread]) return null;
    const span = rec.spans.first[at.thread] + at.span;
    return span < rec.spans.first[at.thread + 1] ? span : null;
  }

  draw() {
    if (!this.width || !this.layout || this.width <= this.labels) return;
    const {scale, rec} = this;
    const context = this.canvas.getContext('2d', {alpha: false});
    const [width, height] = [this.canvas.width, this.canvas.height];
    this.look ??= makeTiles(scale);
    if (!this.image || this.image.width !== width || this.image.height !== height) {
      this.image = context.createImageData(width, height);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    const {pixels} = this;
    pixels.fill(this.look.none);
    const x0 = Math.round(this.labels * scale);
    const columns = width - x0;
    if (this.table.length !== STATE_COUNT || this.table[0].length !== columns) {
      this.table = Array.from({length: STATE_COUNT}, () => new Float32Array(columns));
    }
    const top = this.scroller.scrollTop;
    const first = laneAt(this.layout.lanes, top);
    const visible = [];
    for (let at = first; at < this.layout.lanes.length; at += 1) {
      const lane = this.layout.lanes[at];
      const y = lane.y - top + RULER;
      if (y >= this.height) break;
      visible.push([lane, y]);
      const begin = Math.round((y + 2) * scale);
      const end = Math.min(height, Math.round((y + lane.height - 2) * scale));
      if (end <= Math.round(RULER * scale)) continue;
      for (const row of this.table) row.fill(0);
      const full = laneStates(rec, lane, this.view[0], this.view[1], columns, this.table);
      const above = Math.max(begin, 0);
      paintLane(pixels, width, x0, above, end - above, columns, this.table, full, this.look);
    }
    context.putImageData(this.image, 0, 0);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    drawOver(this, context, visible);
    context.setTransform(1, 0, 0, 1, 0, 0);
    drawMinimap(this);
    const span = this.view[1] - this.view[0];
    this.where.textContent = `${moment(this.view[0], span)} – ${moment(this.view[1], span)} (${duration(span)})`;
  }

  /** The lane and span under a point. */
  hit(x, y) {
    if (y < RULER) return null;
    const lane = this.layout.lanes[laneAt(this.layout.lanes, y - RULER + this.scroller.scrollTop)];
    if (!lane) return null;
    if (x < this.labels || lane.thread === null) return {lane, span: null, ns: this.nsOf(x)};
    const {spans} = this.rec;
    const ns = this.nsOf(x);
    const margin = (this.view[1] - this.view[0]) / (this.width - this.labels);
    let best = null;
    const end = spans.first[lane.thread + 1];
    for (
      let span = firstSpan(spans, lane.thread, ns - margin);
      span < end && spans.from[span] <= ns + margin;
      span += 1
    ) {
      const inside = spans.from[span] <= ns && spans.to[span] > ns;
      const nearer =
        best === null || spans.to[span] - spans.from[span] > spans.to[best] - spans.from[best];
      if (inside || nearer) best = span;
      if (inside) break;
    }
    return {lane, span: best, ns};
  }

  laneWords(lane, ns) {
    const {rec} = this;
    if (lane.thread === null)
      return [
        groupTitle(lane.group),
        `${counted(lane.group.threads.filter((thread) => rec.life[thread] && rec.life[thread][0] <= ns && rec.life[thread][1] >= ns).length, 'thread')} at ${moment(ns, this.view[1] - this.view[0])}`,
      ];
    const life = rec.life[lane.thread];
    const alive = life && ns >= life[0] && ns <= life[1];
    return [
      [threadName(rec, lane.thread), threadIds(rec, lane.thread)].filter(Boolean).join(', '),
      !alive
        ? 'not alive'
        : rec.recording.schedule
          ? 'Running'
          : 'Running, or in a system call that was not recorded',
    ];
  }

  hover(event) {
    const box = this.scroller.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    this.cursor = x;
    const hit = this.drag ? null : this.hit(x, y);
    this.redraw();
    if (!hit || x < this.labels) {
      this.tooltip.hidden = true;
      return;
    }
    const words = this.laneWords(hit.lane, hit.ns);
    if (hit.span !== null) words.splice(1, 1, ...spanWords(this.rec, hit.span));
    words.push(...[hit.lane.thread === null ? null : pathWords(this.rec, hit.lane.thread, hit.ns)].filter(Boolean));
    words.push(moment(hit.ns, (this.view[1] - this.view[0]) / 50));
    this.tooltip.replaceChildren(
      ...words.map((text, at) => h('div', {class: at === 0 ? 'first' : null}, text)),
    );
    this.tooltip.hidden = false;
    const own = this.tooltip.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, window.innerWidth - own.width - 8);
    const top =
      event.clientY + 18 + own.height > window.innerHeight
        ? event.clientY - own.height - 10
        : event.clientY + 18;
    this.tooltip.style.left = `${Math.max(4, left)}px`;
    this.tooltip.style.top = `${Math.max(4, top)}px`;
  }

  click(x, y) {
    const hit = this.hit(x, y);
    if (!hit) return;
    if (hit.lane.thread === null) this.toggle(hit.lane.group);
    else selectSpan(this.rec, hit.lane.thread, hit.span);
  }

  /** Selects the next or previous wait of the selected thread. */
  step(by) {
    const {rec, at} = this;
    if (at.thread === undefined || !rec.all[at.thread]) return;
    const [first, end] = [rec.spans.first[at.thread], rec.spans.first[at.thread + 1]];
    if (first === end) return;
    const now = this.selectedSpan();
    const start = now ?? firstSpan(rec.spans, at.thread, this.view[0]) - (by > 0 ? 1 : 0);
    const span = Math.min(Math.max(start + by, first), end - 1);
    const [from, to] = [rec.spans.from[span], rec.spans.to[span]];
    if (from < this.view[0] || to > this.view[1]) {
      const length = Math.max(this.view[1] - this.view[0], (to - from) * 1.5);
      this.show([(from + to - length) / 2, (from + to + length) / 2]);
    }
    selectSpan(rec, at.thread, span, true);
    this.live.textContent = `${threadName(rec, at.thread)}: ${spanWords(rec, span).join(', ')}`;
  }

  /** Selects the next or previous thread. */
  move(by) {
    const {lanes, laneOf} = this.layout;
    let at = this.at.thread === undefined ? (by > 0 ? -1 : lanes.length) : laneOf[this.at.thread];
    do at += by;
    while (lanes[at] && lanes[at].thread === null);
    if (!lanes[at]) return;
    select({thread: lanes[at].thread, span: null, object: null}, true);
    this.live.textContent = this.laneWords(lanes[at], this.view[0])[0];
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const keys = {
      ArrowLeft: () => this.pan(-0.2),
      ArrowRight: () => this.pan(0.2),
      a: () => this.pan(-0.2),
      d: () => this.pan(0.2),
      ArrowUp: () => this.move(-1),
      ArrowDown: () => this.move(1),
      '+': () => this.zoom(0.6),
      '=': () => this.zoom(0.6),
      '-': () => this.zoom(1 / 0.6),
      w: () => this.zoom(0.6),
      s: () => this.zoom(1 / 0.6),
      0: () => this.show([0, this.rec.end]),
      Home: () => this.show([0, this.rec.end]),
      f: () => this.fit(),
      n: () => this.step(1),
      p: () => this.step(-1),
      ' ': () =>
        this.at.thread !== undefined &&
        this.toggle(this.rec.groups.lanes[this.rec.groups.of[this.at.thread]]),
    };
    const act = keys[event.key] ?? keys[event.key.toLowerCase()];
    if (!act) return;
    event.preventDefault();
    act();
  }

  wheel(event, anywhere) {
    const box = this.scroller.getBoundingClientRect();
    const x = event.clientX - box.left;
    const scrolls = this.layout.height + RULER > this.height;
    if (
      event.ctrlKey ||
      event.metaKey ||
      anywhere ||
      (!scrolls && !event.shiftKey && event.deltaX === 0)
    ) {
      event.preventDefault();
      const delta = event.deltaY * (event.deltaMode === 1 ? 16 : 1);
      this.zoom(
        2 ** Math.max(-1, Math.min(1, delta / 240)),
        anywhere ? undefined : Math.max(this.view[0], this.nsOf(x)),
      );
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.pan((event.deltaX || event.deltaY) / 1000);
    }
  }

  listen() {
    this.scroller.addEventListener('scroll', () => this.redraw());
    this.scroller.addEventListener('wheel', (event) => this.wheel(event, false), {passive: false});
    this.minimap.addEventListener('wheel', (event) => this.wheel(event, true), {passive: false});
    this.scroller.addEventListener('keydown', (event) => this.key(event));
    this.scroller.addEventListener('pointermove', (event) => this.hover(event));
    this.scroller.addEventListener('pointerleave', () => {
      this.cursor = null;
      this.tooltip.hidden = true;
      this.redraw();
    });
    this.scroller.addEventListener('dblclick', (event) => {
      const box = this.scroller.getBoundingClientRect();
      const hit = this.hit(event.clientX - box.left, event.clientY - box.top);
      if (hit?.span !== null && hit?.lane.thread !== null) this.fit();
    });
    this.scroller.addEventListener('pointerdown', (event) => this.press(event));
    this.minimap.addEventListener('pointerdown', (event) => {
      const box = this.minimap.getBoundingClientRect();
      const to = (move) => {
        const part = (move.clientX - box.left - this.labels) / (this.width - this.labels);
        const half = (this.view[1] - this.view[0]) / 2;
        this.show([part * this.rec.end - half, part * this.rec.end + half]);
      };
      this.follow(event, to, () => {});
      to(event);
    });
  }

  /** Follows the pointer until it is released. */
  follow(event, moved, released) {
    const target = event.target;
    target.setPointerCapture?.(event.pointerId);
    const up = (end) => {
      target.removeEventListener('pointermove', moved);
      target.removeEventListener('pointerup', up);
      target.removeEventListener('pointercancel', up);
      this.drag = false;
      released(end);
    };
    target.addEventListener('pointermove', moved);
    target.addEventListener('pointerup', up);
    target.addEventListener('pointercancel', up);
  }

  press(event) {
    if (event.button !== 0) return;
    const box = this.scroller.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    if (x > this.scroller.clientWidth) return;
    const brushes = y < RULER || event.shiftKey;
    const start = this.nsOf(x);
    const view = this.view;
    let far = false;
    this.follow(
      event,
      (move) => {
        const now = move.clientX - box.left;
        far ||= Math.abs(now - x) > 3 || Math.abs(move.clientY - box.top - y) > 3;
        if (!far) return;
        this.drag = true;
        if (brushes && x >= this.labels) {
          const ends = [start, this.nsOf(Math.max(this.labels, now))].sort((a, b) => a - b);
          this.brush = [Math.max(0, ends[0]), Math.min(this.rec.end, ends[1])];
          this.redraw();
        } else {
          const by = ((x - now) / (this.width - this.labels)) * (view[1] - view[0]);
          this.show([view[0] + by, view[1] + by]);
        }
      },
      () => {
        if (this.brush) {
          const range = this.brush.map(Math.round);
          this.brush = null;
          if (range[1] > range[0]) select({range, thread: null, span: null, object: null});
          this.redraw();
        } else if (!far) this.click(x, y);
      },
    );
  }
}
