// The length of the run before and after, and what it leaves out.
import {duration} from './format.js';
import {h} from './dom.js';
import {arrow, value} from './diff_values.js';

const PARTS = [
  ['net_ns', 'own', 'the program itself'],
  ['recorder_ns', 'recorder', 'stopped by the recorder'],
  ['others_ns', 'foreign', 'other programs on the machine'],
];

/** The wall time of one side in its parts. */
function wallBar(diff, side, scale) {
  const part = (ns) => `${scale > 0 ? (100 * ns) / scale : 0}%`;
  const words = PARTS.map(([name, , about]) => `${about}: ${duration(diff[name][side].median)}`);
  return [
    h('span', {class: 'label'}, side),
    h(
      'span',
      {class: 'wallbar', role: 'img', 'aria-label': words.join(', '), title: words.join('\n')},
      PARTS.map(([name, kind]) =>
        h('span', {class: `part ${kind}`, style: {width: part(diff[name][side].median)}}),
      ),
    ),
    h(
      'span',
      {},
      h('strong', {}, value(diff.net_ns[side].median, duration(diff.net_ns[side].median))),
      h('span', {class: 'quiet'}, ' of ', duration(diff.wall_ns[side].median)),
    ),
  ];
}

/** The first section. */
export function headline(data) {
  const {diff} = data;
  const {net_ns: net, wall_ns: wall} = diff;
  const scale = Math.max(
    ...['before', 'after'].map((side) =>
      Math.max(
        wall[side].median,
        PARTS.reduce((sum, [name]) => sum + diff[name][side].median, 0),
      ),
    ),
  );
  return h(
    'section',
    {class: 'headline', id: 'section-summary', tabindex: '-1'},
    data.doubts.map((text) => h('p', {class: 'warn doubt'}, `! ${text}`)),
    h('h1', {}, arrow(net.delta, !net.noise), ' ', data.headline),
    h('p', {class: 'noise'}, data.noise),
    h(
      'div',
      {class: 'sides'},
      ['before', 'after'].map((side) => wallBar(diff, side, scale)),
    ),
    h(
      'ul',
      {class: 'legend', 'aria-label': 'Parts of the wall time'},
      PARTS.map(([, kind, about]) => h('li', {}, h('span', {class: `swatch part ${kind}`}), about)),
    ),
    data.left_out ? h('p', {}, data.left_out) : null,
  );
}
