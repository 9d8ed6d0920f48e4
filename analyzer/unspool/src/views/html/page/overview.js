// The first view: what ran, what is wrong, how busy the program was.
import {baseName, count, counted, duration, percent} from './format.js';
import {h, svg, tableHead} from './dom.js';
import {stateBar, stateLegend} from './states.js';
import {linkTo} from './location.js';
import {binTimes, groupTimes, objectWaits} from './range.js';
import {groupTitle} from './groups.js';
import {objectLink} from './links.js';
import {findingCard} from './findings.js';
import {pathCard} from './path.js';

const CHART_BINS = 300;
/** Waits of less than this part of the recording for a lock without recorded calls are left out. */
const MIN_SHOWN_DIVISOR = 1000;

function ending(recording) {
  if (recording.signal !== null) return `killed by ${recording.signal_name}`;
  if (recording.exit_code !== null) return `exit code ${recording.exit_code}`;
  return 'still running at the end of the recording';
}

function headline(rec) {
  const {target, recording} = rec;
  const isSeen = ({origin, process, creation}) =>
    origin === 'created' || (process !== undefined && typeof creation === 'number');
  const created = rec.all.filter(isSeen).length;
  return h(
    'header',
    {class: 'headline'},
    h('h1', {}, target.name || baseName(target.executable) || 'Recording'),
    h(
      'p',
      {},
      [
        target.executable,
        target.arch,
        target.pid === null ? null : `pid ${target.pid}`,
        ending(recording),
      ]
        .filter(Boolean)
        .join(' · '),
    ),
    h(
      'ul',
      {class: 'figures'},
      [
        [duration(recording.duration_ns), 'recorded'],
        figure(rec.threads.length, 'thread'),
        figure(created, 'creation seen', 'creations seen'),
        figure(rec.groups.list.length, 'identity', 'identities'),
        rec.processes.length > 0 &&
          figure(rec.processes.length, 'process started', 'processes started'),
        rec.all.length > rec.threads.length &&
          figure(rec.all.length - rec.threads.length, 'thread of these', 'threads of these'),
        rec.sync_recorded && figure(rec.objects.length, 'sync object'),
        rec.sync_recorded && figure(recording.calls_recorded, 'call event'),
        recording.calls_missed > 0 &&
          figure(recording.calls_missed, 'call event missed', 'call events missed'),
      ]
        .filter(Boolean)
        .map(([figure, what]) => h('li', {}, h('strong', {}, figure), ` ${what}`)),
    ),
    rec.started && h('p', {class: 'started'}, rec.started),
  );
}

/** A number and its noun, apart. */
function figure(number, noun, nouns) {
  return [count(number), number === 1 ? noun : (nouns ?? noun + 's')];
}

/** A list of notes, if there are any. */
function notes(title, kind, list) {
  if (list.length === 0) return null;
  const sentence = (note) => note.charAt(0).toUpperCase() + note.slice(1);
  return h(
    'section',
    {'aria-label': title},
    h('h2', {}, title),
    h('ul', {class: 'notes'}, list.map((note) => h('li', {class: kind}, sentence(note)))),
  );
}

/** How many threads ran on average, with those of other processes. */
function averages(rec, table) {
  const [running, runnable] = table.map(
    (shares) => shares.reduce((sum, share) => sum + share, 0) / CHART_BINS,
  );
  const words = (onCpu, waited) =>
    `On average ${onCpu.toFixed(2)} threads were on a CPU, and ${waited.toFixed(2)} waited for one.`;
  // A thread also runs within its recorded waits.
  if (rec.concurrency?.on_cpu != null) {
    const others = rec.groups.lanes.slice(rec.groups.list.length);
    const threads = others.flatMap((group) => group.threads);
    const times = groupTimes(rec, threads, null);
    return words(
      rec.concurrency.on_cpu + times[0] / rec.end,
      rec.concurrency.runnable + times[1] / rec.end,
    );
  }
  if (rec.recording.schedule) return words(running, runnable);
  return `On average ${running.toFixed(2)} threads ran or were in system calls that were not recorded.`;
}

/** Threads by state over time, as an area chart. */
function concurrencyChart(rec) {
  const everything = rec.all.map((_, thread) => thread);
  const table = binTimes(rec, everything, CHART_BINS);
  const layers = [0, 1, 2, 3, 5, 7, 6].filter((state) => table[state].some((share) => share > 0));
  const names = ['running', 'runnable', 'held', 'others', 'idle', 'away', 'unknown', 'stopped'];
  const sums = new Float64Array(CHART_BINS);
  for (const state of layers) table[state].forEach((share, bin) => (sums[bin] += share));
  const top = Math.max(1, ...sums);
  const base = new Float64Array(CHART_BINS);
  // Shares of a bin add up to a little more than the number of its threads.
  const most = Math.ceil(top * (1 - 1e-9));
  const height = 140;
  const areas = layers.map((state) => {
    let up = '';
    let down = '';
    for (let bin = 0; bin < CHART_BINS; bin += 1) {
      const low = height - (base[bin] / top) * height;
      base[bin] += table[state][bin];
      const high = height - (base[bin] / top) * height;
      up += `L${bin} ${high.toFixed(1)}L${bin + 1} ${high.toFixed(1)}`;
      down = `L${bin + 1} ${low.toFixed(1)}L${bin} ${low.toFixed(1)}${down}`;
    }
    return svg('path', {class: `area ${names[state]}`, d: `M0 ${height}${up}${down}Z`});
  });
  return h(
    'section',
    {class: 'card wide'},
    h('h2', {}, 'Threads over time'),
    h(
      'p',
      {class: 'quiet'},
      averages(rec, table),
    ),
    h(
      'a',
      {class: 'chart', href: linkTo({view: 'timeline'}), 'aria-label': 'Open the timeline'},
      h('span', {class: 'axis'}, count(most)),
      svg(
        'svg',
        {
          viewBox: `0 0 ${CHART_BINS} ${height}`,
          preserveAspectRatio: 'none',
          role: 'img',
          'aria-label': `Threads by state over time, at most ${most}`,
        },
        areas,
      ),
    ),
    h('div', {class: 'ends'}, h('span', {}, '0'), h('span', {}, duration(rec.end))),
    stateLegend(new Set(layers)),
  );
}

function topGroups(rec) {
  const rows = rec.groups.tree
    .map((group) => ({group, times: groupTimes(rec, group.threads, null)}))
    .sort((a, b) => b.times[0] - a.times[0])
    .slice(0, 5);
  return h(
    'section',
    {class: 'card'},
    h('h2', {}, rec.processes.length > 0 ? 'Busiest threads and processes' : 'Busiest identities'),
    h(
      'table',
      {class: 'plain'},
      tableHead('Threads', '#Running', 'States'),
      h(
        'tbody',
        {},
        rows.map(({group, times}) =>
          h(
            'tr',
            {},
            h(
              'td',
              {},
              h(
                'a',
                {href: linkTo({view: 'threads', group: group.key})},
                groupTitle(group),
              ),
              group.more ? h('span', {class: 'quiet'}, ` ${group.more}`) : null,
            ),
            h('td', {class: 'number'}, duration(times[0])),
            h('td', {}, stateBar(times, group.title)),
          ),
        ),
      ),
    ),
  );
}

function topObjects(rec) {
  if (rec.allObjects.length === 0 && !rec.sync_recorded) {
    return h(
      'section',
      {class: 'card'},
      h('h2', {}, 'Synchronization'),
      h(
        'p',
        {},
        'What the threads waited for was not recorded. ',
        h('code', {}, 'unspool record --sync'),
        ' records it.',
      ),
    );
  }
  const contended = objectWaits(
    {
      ...rec,
      spans: {
        ...rec.spans,
        use: rec.spans.use.map((use, span) =>
          rec.spans.kind[span] === 2 || rec.spans.kind[span] === 3 ? use : -1,
        ),
      },
    },
    null,
  );
  const least = rec.end / MIN_SHOWN_DIVISOR;
  const locks = rec.lock_waits
    .map((lock, index) => [rec.objects.length + index, rec.allObjects[rec.objects.length + index].waits])
    .filter(([, waits]) => waits.total_ns >= least);
  const rows = [...contended, ...locks].sort((a, b) => b[1].total_ns - a[1].total_ns).slice(0, 5);
  return h(
    'section',
    {class: 'card'},
    h('h2', {}, 'Longest waits by object'),
    rows.length === 0
      ? h('p', {}, 'No thread waited for another one.')
      : h(
          'table',
          {class: 'plain'},
          tableHead('Object', '#Waits', '#Total', '#Of all threads’ time'),
          h(
            'tbody',
            {},
            rows.map(([index, waits]) =>
              h(
                'tr',
                {},
                h('td', {}, objectLink(rec, index)),
                h('td', {class: 'number'}, count(waits.count)),
                h('td', {class: 'number'}, duration(waits.total_ns)),
                h('td', {class: 'number'}, percent(waits.total_ns, rec.alive_ns)),
              ),
            ),
          ),
        ),
  );
}

/** Draws the overview. */
export function overview(rec) {
  const findings = rec.findings.slice(0, 6);
  const others = rec.notes.filter((note) => !rec.errors.includes(note));
  return h(
    'div',
    {class: 'page'},
    headline(rec),
    notes('Read this first', 'error', rec.errors),
    h(
      'section',
      {'aria-label': 'Findings'},
      h(
        'h2',
        {},
        rec.findings.length === 0 ? 'No findings' : counted(rec.findings.length, 'finding'),
      ),
      rec.findings.length === 0
        ? h(
            'p',
            {class: 'quiet'},
            rec.recording.too_little_seen
              ? 'Most calls were not recorded, so problems may be missing here.'
              : 'Unspool found no problem in this recording.',
          )
        : null,
      h(
        'div',
        {class: 'cards'},
        findings.map((finding, at) => findingCard(rec, finding, at, true)),
      ),
      rec.findings.length > findings.length
        ? h(
            'p',
            {},
            h('a', {href: linkTo({view: 'findings'})}, `All ${rec.findings.length} findings`),
          )
        : null,
    ),
    h('div', {class: 'cards'}, pathCard(rec), concurrencyChart(rec), topGroups(rec), topObjects(rec)),
    notes('Notes on this recording', null, others),
  );
}
