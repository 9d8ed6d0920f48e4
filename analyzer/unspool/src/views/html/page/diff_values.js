// Values before and after: as numbers, as a pair of bars, and which of them differ.
import {count, duration} from './format.js';
import {h} from './dom.js';

/** A difference of times with its sign. */
export function signedDuration(ns) {
  return `${ns < 0 ? '−' : '+'}${duration(Math.abs(ns))}`;
}

/** A difference of counts with its sign. */
export function signedCount(number) {
  return `${number < 0 ? '−' : '+'}${count(Math.abs(number))}`;
}

/** A relative difference with its sign, or a factor; nothing if the value before is 0. */
export function signedPercent(change) {
  if (change.before.median === 0) return '';
  const share = (100 * change.delta) / change.before.median;
  if (share >= 1000) return `× ${count(Math.round(change.after.median / change.before.median))}`;
  return `${share < 0 ? '−' : '+'}${Math.abs(share).toFixed(0)} %`;
}

/** How a kind of value is written. */
export const MEASURES = {
  time: {words: duration, signed: signedDuration},
  number: {words: count, signed: signedCount},
};

/** A number for people, which scripts can read, too. */
export function value(number, words) {
  return h('data', {value: String(number)}, words);
}

/** The median, and the range if several recordings differ. */
export function spreadWords(spread, measure) {
  const {words} = MEASURES[measure];
  if (spread.min === spread.max) return words(spread.median);
  return `${words(spread.median)} (${words(spread.min)} – ${words(spread.max)})`;
}

/** Which way a value changed, in a sign that needs no colour. */
export function arrow(delta, differs) {
  if (!differs || delta === 0) return null;
  const [sign, name, words] = delta > 0 ? ['▲', 'rise', 'more'] : ['▼', 'fall', 'less'];
  return h('span', {class: `arrow ${name}`, role: 'img', 'aria-label': words}, sign);
}

/** The largest value of these changes, for the scale of their bars. */
export function largest(changes) {
  return changes.reduce((most, it) => Math.max(most, it.before.max, it.after.max), 0);
}

function bar(side, spread, scale) {
  const part = (number) => `${scale > 0 ? (100 * number) / scale : 0}%`;
  return h(
    'span',
    {class: `track ${side}`},
    spread.median > 0
      ? h('span', {class: 'amount', style: {width: part(spread.median)}})
      : null,
    spread.min === spread.max
      ? null
      : h('span', {
          class: 'spread',
          style: {left: part(spread.min), width: part(spread.max - spread.min)},
        }),
  );
}

/** Two bars on one scale: before is hollow, after is filled. */
export function pairBar(change, scale) {
  return h(
    'span',
    {class: 'pairbar', 'aria-hidden': 'true'},
    bar('before', change.before, scale),
    bar('after', change.after, scale),
  );
}

/** A bar from the middle: to the right if the run gets longer, to the left if shorter. */
export function effectBar(effect, scale) {
  const longer = effect.effect_ns > 0;
  const part = scale > 0 ? (50 * Math.abs(effect.effect_ns)) / scale : 0;
  return h(
    'span',
    {class: 'effectbar', 'aria-hidden': 'true'},
    h('span', {
      class: `amount ${longer ? 'longer' : 'shorter'}`,
      style: {left: `${longer ? 50 : 50 - part}%`, width: `${part}%`},
    }),
  );
}

/** A cell with both values, their bars, and an arrow if they differ by more than noise. */
export function changeCell(change, measure, differs, scale, name) {
  const {words} = MEASURES[measure];
  const sides = ['before', 'after'];
  const titles = sides.map((side) => `${side}: ${spreadWords(change[side], measure)}`);
  const [before, after] = sides.map((side) => words(change[side].median));
  const equal = before === after;
  return h(
    'td',
    {
      class: `change${differs ? ' differs' : ''}`,
      'data-label': name,
      title: titles.join('\n'),
    },
    h(
      'span',
      {class: 'values'},
      value(change.before.median, before),
      h('span', {class: equal ? 'hidden' : 'quiet'}, ' → '),
      h('span', {class: equal ? 'hidden' : null}, value(change.after.median, after)),
      ' ',
      arrow(change.delta, differs),
    ),
    pairBar(change, scale),
  );
}

/** The meaning of bars, and of signs if there can be any. */
export function changeLegend({recordings: {before, after}}) {
  const sample = (side) =>
    h(
      'span',
      {class: 'pairbar swatch'},
      h('span', {class: `track ${side}`}, h('span', {class: 'amount'})),
    );
  return h(
    'ul',
    {class: 'legend', 'aria-label': 'Signs'},
    h('li', {}, sample('before'), 'before'),
    h('li', {}, sample('after'), 'after'),
    Math.max(before, after) > 1 && [
      h('li', {}, h('span', {class: 'arrow rise'}, '▲'), ' more, by more than noise'),
      h('li', {}, h('span', {class: 'arrow fall'}, '▼'), ' less, by more than noise'),
    ],
  );
}
