// The states of a thread. `id` is the number in the data; views/states.rs has it.
import {h} from './dom.js';

/** All states, in the order in which a column of the timeline stacks them, from the bottom. */
export const STATES = [
  {
    id: 0,
    key: 'running',
    name: 'Running',
    about: 'runs; or, without the kernel’s schedule, is in an unrecorded system call',
  },
  {id: 1, key: 'runnable', name: 'Runnable', about: 'could run and waits for a processor'},
  {id: 2, key: 'held', name: 'Lock wait', about: 'waits for what another thread holds'},
  {
    id: 3,
    key: 'others',
    name: 'Waits for threads',
    about: 'waits for other threads to come or to finish',
  },
  {
    id: 5,
    key: 'away',
    name: 'Off CPU',
    about: 'is blocked in a system call, or for a reason that was not recorded',
  },
  {id: 7, key: 'stopped', name: 'Stopped', about: 'is stopped by the recorder'},
  {id: 6, key: 'unknown', name: 'Unknown', about: 'waits at that time were not recorded'},
  {id: 4, key: 'idle', name: 'Idle', about: 'waits for work, by design'},
];

/** States by their number. */
export const STATE_OF = [];
for (const state of STATES) STATE_OF[state.id] = state;

/** How many numbers of states there are. */
export const STATE_COUNT = STATE_OF.length;

/** A bar with the share of each state; `times` has nanoseconds by number. */
export function stateBar(times, label) {
  const whole = times.reduce((sum, ns) => sum + ns, 0);
  const parts = STATES.filter((state) => times[state.id] > 0);
  const words = parts.map(
    (state) => `${state.name} ${((100 * times[state.id]) / whole).toFixed(1)} %`,
  );
  return h(
    'span',
    {
      class: 'bar',
      role: 'img',
      'aria-label': `${label ?? ''} ${words.join(', ')}`,
      title: words.join('\n'),
    },
    parts.map((state) =>
      h('span', {
        class: `fill ${state.key}`,
        style: {'flex-grow': String(times[state.id] / whole)},
      }),
    ),
  );
}

/** The meaning of colours and patterns. */
export function stateLegend(ids) {
  return h(
    'ul',
    {class: 'legend', 'aria-label': 'States'},
    STATES.filter((state) => !ids || ids.has(state.id)).map((state) =>
      h('li', {title: state.about}, h('span', {class: `swatch fill ${state.key}`}), state.name),
    ),
  );
}
