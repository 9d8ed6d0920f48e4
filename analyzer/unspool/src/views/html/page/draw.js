// What is drawn over the lanes' pixels: names, the ruler, selections, arrows, the minimap.
import {moment, shortened} from './format.js';
import {themeColor} from './dom.js';
import {STATES} from './states.js';
import {groupTitle, memberName} from './groups.js';
import {binTimes, firstSpan} from './range.js';
import {objectName} from './links.js';
import {RULER} from './lanes.js';
import {paintOverview} from './paint.js';
import {drawPath} from './path.js';

const MAX_ARROWS = 300;

/** A round number of nanoseconds, at least this many: 1, 2 or 5 times a power of ten. */
function roundStep(ns) {
  const power = 10 ** Math.floor(Math.log10(Math.max(ns, 1)));
  for (const factor of [1, 2, 5, 10]) if (factor * power >= ns) return factor * power;
  return 10 * power;
}

export function drawOver(timeline, context, visible) {
  const {rec, at} = timeline;
  const color = (name) => themeColor(name);
  const [ink, quiet, line, accent, canvas] = ['ink', 'quiet', 'line', 'accent', 'canvas'].map(
    color,
  );
  const object = at?.object;
  // Text in spans that have room for it, holds below the lane, and waits for the selected object.
  context.save();
  context.beginPath();
  context.rect(timeline.labels, RULER, timeline.width - timeline.labels, timeline.height - RULER);
  context.clip();
  context.font = '11px system-ui, sans-serif';
  context.textBaseline = 'middle';
  const perPixel = (timeline.view[1] - timeline.view[0]) / (timeline.width - timeline.labels);
  for (const [lane, y] of visible) {
    if (lane.thread === null) continue;
    drawSpans(timeline, context, lane, y, perPixel, object, {ink, canvas, accent});
  }
  if (timeline.path) drawPath(timeline, context);
  drawSelection(timeline, context, visible, accent);
  if (timeline.arrows) drawArrows(timeline, context, accent, ink);
  context.restore();
  drawRuler(timeline, context, {ink, quiet, line, canvas});
  drawLabels(timeline, context, visible, {ink, quiet, line, accent, canvas});
  for (const [from, to] of [at?.range, timeline.brush].filter(Boolean)) {
    const a = Math.max(timeline.labels, timeline.xOf(from));
    const b = Math.min(timeline.width, timeline.xOf(to));
    if (b <= a) continue;
    context.fillStyle = accent;
    context.globalAlpha = 0.12;
    context.fillRect(a, 0, b - a, timeline.height);
    context.globalAlpha = 1;
    context.fillRect(a, 0, 1, timeline.height);
    context.fillRect(b - 1, 0, 1, timeline.height);
  }
}

function drawSpans(timeline, context, lane, y, perPixel, object, colors) {
  const {spans} = timeline.rec;
  const {thread} = lane;
  const end = spans.first[thread + 1];
  if (object !== undefined) drawHolds(timeline, context, lane, y, object, colors.ink);
  let drawn = 0;
  for (
    let span = firstSpan(spans, thread, timeline.view[0]);
    span < end && spans.from[span] < timeline.view[1];
    span += 1
  ) {
    const long = spans.to[span] - spans.from[span];
    const place = timeline.rec.uses[spans.use[span]];
    if (object !== undefined && place?.[0] === object && drawn < 2000) {
      const a = timeline.xOf(spans.from[span]);
      context.strokeStyle = colors.ink;
      context.strokeRect(a, y + 2.5, Math.max(1, long / perPixel), lane.height - 5);
      drawn += 1;
    }
    if (long < perPixel * 60 || (spans.kind[span] === 4 && long < perPixel * 120)) continue;
    const waited = place?.[0] ?? timeline.rec.lockAt(thread, span);
    if (waited < 0) continue;
    const a = Math.max(timeline.labels, timeline.xOf(spans.from[span]));
    const b = Math.min(timeline.width, timeline.xOf(spans.to[span]));
    if (b - a < 50) continue;
    const words = shortened(
      objectName(timeline.rec.allObjects[waited]),
      Math.floor((b - a - 12) / 6.2),
    );
    const wide = Math.min(b - a - 6, context.measureText(words).width + 6);
    context.fillStyle = colors.canvas;
    context.globalAlpha = 0.85;
    context.fillRect(a + 3, y + 4, wide, lane.height - 8);
    context.globalAlpha = 1;
    context.fillStyle = colors.ink;
    context.fillText(words, a + 6, y + lane.height / 2 + 0.5, wide);
  }
}

function drawHolds(timeline, context, lane, y, object, ink) {
  const {holds, uses} = timeline.rec;
  context.fillStyle = ink;
  const end = holds.first[lane.thread + 1];
  for (
    let hold = firstSpan(holds, lane.thread, timeline.view[0]);
    hold < end && holds.from[hold] < timeline.view[1];
    hold += 1
  ) {
    if (uses[holds.use[hold]]?.[0] !== object) continue;
    const a = timeline.xOf(holds.from[hold]);
    context.fillRect(a, y + lane.height - 4, Math.max(1, timeline.xOf(holds.to[hold]) - a), 3);
  }
}

function drawSelection(timeline, context, visible, accent) {
  const {at, rec} = timeline;
  if (at?.thread === undefined) return;
  const found = visible.find(([lane]) => lane.thread === at.thread);
  if (!found) return;
  const [lane, y] = found;
  const span = timeline.selectedSpan();
  context.strokeStyle = accent;
  context.lineWidth = 2;
  if (span !== null) {
    const a = timeline.xOf(rec.spans.from[span]);
    context.strokeRect(
      a - 1,
      y + 1,
      Math.max(3, timeline.xOf(rec.spans.to[span]) - a + 2),
      lane.height - 2,
    );
  }
  context.lineWidth = 1;
}

/** Where a thread is drawn, in the middle of its lane or of its group's. */
function middleOf(timeline, thread) {
  const lane = timeline.layout.lanes[timeline.layout.laneOf[thread]];
  return lane ? lane.y + lane.height / 2 - timeline.scroller.scrollTop + RULER : null;
}

function drawArrow(timeline, context, x, from, to, color, dashed) {
  const way = to > from ? 1 : -1;
  context.strokeStyle = color;
  context.fillStyle = color;
  context.setLineDash(dashed ? [4, 3] : []);
  context.beginPath();
  context.moveTo(x + 0.5, from);
  context.lineTo(x + 0.5, to - way * 5);
  context.stroke();
  context.setLineDash([]);
  context.beginPath();
  context.moveTo(x + 0.5, to);
  context.lineTo(x - 3, to - way * 6);
  context.lineTo(x + 4, to - way * 6);
  context.fill();
  context.beginPath();
  context.arc(x + 0.5, from, 2, 0, 7);
  context.fill();
}

/** From waker to woken, and from creator to created, of the selected thread. */
function drawArrows(timeline, context, accent, ink) {
  const {at, rec} = timeline;
  const {spans} = rec;
  if (at?.thread === undefined || !rec.all[at.thread]) return;
  const chosen = timeline.selectedSpan();
  let drawn = 0;
  const draw = (ns, from, to, dashed, strong) => {
    const [a, b] = [middleOf(timeline, from), middleOf(timeline, to)];
    if (
      ns < timeline.view[0] ||
      ns > timeline.view[1] ||
      a === null ||
      b === null ||
      a === b ||
      drawn >= MAX_ARROWS
    )
      return;
    drawn += 1;
    context.globalAlpha = strong ? 1 : 0.55;
    drawArrow(timeline, context, timeline.xOf(ns), a, b, dashed ? ink : accent, dashed);
    context.globalAlpha = 1;
  };
  const end = spans.first[at.thread + 1];
  for (
    let span = firstSpan(spans, at.thread, timeline.view[0]);
    span < end && spans.from[span] < timeline.view[1];
    span += 1
  ) {
    if (spans.waker[span] < 0 || (chosen !== null && chosen !== span)) continue;
    draw(spans.to[span], spans.waker[span], at.thread, false, chosen === span);
  }
  const born = (thread) => rec.life[thread]?.[0];
  const thread = rec.all[at.thread];
  if (thread.creator !== null) draw(born(at.thread) ?? -1, thread.creator, at.thread, true, true);
  rec.all.forEach((other, child) => {
    if (other.creator === at.thread) draw(born(child) ?? -1, at.thread, child, true, false);
  });
}

function drawRuler(timeline, context, {quiet, line, canvas, ink}) {
  context.fillStyle = canvas;
  context.fillRect(0, 0, timeline.width, RULER);
  const span = timeline.view[1] - timeline.view[0];
  const step = roundStep((span / (timeline.width - timeline.labels)) * 90);
  context.font = '11px system-ui, sans-serif';
  context.textBaseline = 'middle';
  for (let ns = Math.ceil(timeline.view[0] / step) * step; ns <= timeline.view[1]; ns += step) {
    const x = Math.round(timeline.xOf(ns)) + 0.5;
    context.fillStyle = line;
    context.globalAlpha = 0.5;
    context.fillRect(x, RULER - 6, 1, timeline.height);
    context.globalAlpha = 1;
    context.fillStyle = quiet;
    context.fillText(moment(ns, step * 100), x + 4, RULER / 2);
  }
  if (timeline.cursor !== null && timeline.cursor >= timeline.labels) {
    context.fillStyle = ink;
    context.globalAlpha = 0.4;
    context.fillRect(Math.round(timeline.cursor), RULER, 1, timeline.height);
    context.globalAlpha = 1;
  }
  context.fillStyle = line;
  context.fillRect(0, RULER - 1, timeline.width, 1);
}

function drawLabels(timeline, context, visible, {ink, quiet, line, accent, canvas}) {
  const {at, rec} = timeline;
  context.save();
  context.beginPath();
  context.rect(0, RULER, timeline.width, timeline.height - RULER);
  context.clip();
  context.fillStyle = canvas;
  context.fillRect(0, RULER, timeline.labels, timeline.height);
  context.textBaseline = 'middle';
  for (const [lane, y] of visible) {
    const group = lane.thread === null;
    const indent = 8 + Math.min(lane.depth, 5) * (timeline.labels < 200 ? 5 : 10);
    if (!group && lane.thread === at?.thread) {
      context.fillStyle = accent;
      context.globalAlpha = 0.18;
      context.fillRect(0, y, timeline.labels, lane.height);
      context.globalAlpha = 1;
      context.fillRect(0, y, 3, lane.height);
    }
    context.fillStyle = line;
    context.globalAlpha = group ? 0.9 : 0.35;
    context.fillRect(group ? 0 : indent, y, timeline.width, 1);
    context.globalAlpha = 1;
    context.fillStyle = group ? ink : lane.group.threads.length === 1 ? ink : quiet;
    context.font = `${group || lane.group.threads.length === 1 ? '600 ' : ''}12px system-ui, sans-serif`;
    const words = group
      ? `${lane.folded ? '▸' : '▾'} ${groupTitle(lane.group)}`
      : lane.group.threads.length === 1
        ? lane.group.label
        : memberName(rec, lane.thread);
    const room = timeline.labels - indent - 8;
    const tid = group ? lane.group.more : String(rec.all[lane.thread].tid ?? '');
    const text = fitted(context, words, room);
    context.fillText(text, indent, y + lane.height / 2 + 0.5, room);
    const used = context.measureText(text).width;
    if (tid && room - used > 50) {
      context.fillStyle = quiet;
      context.font = '11px system-ui, sans-serif';
      context.textAlign = 'right';
      context.fillText(
        shortened(tid, 16),
        timeline.labels - 8,
        y + lane.height / 2 + 0.5,
        room - used - 8,
      );
      context.textAlign = 'left';
    }
  }
  context.fillStyle = line;
  context.fillRect(timeline.labels - 1, RULER, 1, timeline.height);
  context.restore();
}

/** Text that is cut in its middle if it is wider than the room, in pixels. */
function fitted(context, text, room) {
  const wide = context.measureText(text).width;
  return wide <= room ? text : shortened(text, Math.max(6, Math.floor((text.length * room) / wide)));
}

export function drawMinimap(timeline) {
  const context = timeline.minimap.getContext('2d');
  const {width, height} = timeline.minimap;
  const x0 = Math.round(timeline.labels * timeline.scale);
  const inner = width - x0;
  context.clearRect(0, 0, width, height);
  if (!timeline.small) {
    timeline.small = document.createElement('canvas');
    timeline.small.width = inner;
    timeline.small.height = height;
    timeline.allTimes ??= new Map();
    let table = timeline.allTimes.get(inner);
    if (!table)
      timeline.allTimes.set(
        inner,
        (table = binTimes(
          timeline.rec,
          timeline.rec.all.map((_, thread) => thread),
          inner,
        )),
      );
    const colors = STATES.reduce((all, state) => ({...all, [state.id]: themeColor(state.key)}), {});
    paintOverview(timeline.small.getContext('2d'), inner, height, table, colors);
  }
  context.drawImage(timeline.small, x0, 0);
  const xOf = (ns) => x0 + (ns / timeline.rec.end) * inner;
  const [a, b] = timeline.view.map(xOf);
  context.fillStyle = themeColor('canvas');
  context.globalAlpha = 0.65;
  context.fillRect(x0, 0, a - x0, height);
  context.fillRect(b, 0, width - b, height);
  context.globalAlpha = 1;
  context.strokeStyle = themeColor('accent');
  context.lineWidth = timeline.scale;
  context.strokeRect(a + 0.5, 0.5, Math.max(2, b - a - 1), height - 1);
  if (timeline.at?.range) {
    context.fillStyle = themeColor('accent');
    context.globalAlpha = 0.25;
    context.fillRect(
      xOf(timeline.at.range[0]),
      0,
      Math.max(1, xOf(timeline.at.range[1]) - xOf(timeline.at.range[0])),
      height,
    );
    context.globalAlpha = 1;
  }
}
