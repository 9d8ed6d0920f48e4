// The findings with their evidence.
import {counted} from './format.js';
import {h} from './dom.js';
import {linkTo} from './location.js';
import {momentLink, objectLink, spanLink, stackList, threadLink} from './links.js';

/** The object that a finding names: its lock, or the last one of this kind at the address. */
function objectOf(rec, finding, named) {
  if (finding.lock_waits !== undefined) return rec.objects.length + finding.lock_waits;
  for (let index = rec.objects.length - 1; index >= 0; index -= 1) {
    const object = rec.objects[index];
    if (object.address === named.address && object.kind === named.kind) return index;
  }
  return -1;
}

/** The longest wait of a finding's threads at its objects. */
function momentOf(rec, finding) {
  const objects = new Set(finding.objects.map((named) => objectOf(rec, finding, named)));
  let best = null;
  for (const thread of finding.threads) {
    for (let span = rec.spans.first[thread]; span < rec.spans.first[thread + 1]; span += 1) {
      const place = rec.uses[rec.spans.use[span]] ?? [rec.lockAt(thread, span)];
      if (place[0] < 0 || (objects.size > 0 && !objects.has(place[0]))) continue;
      const ns = rec.spans.to[span] - rec.spans.from[span];
      if (!best || ns > best.ns) best = {thread, span, ns};
    }
  }
  return best;
}

/** A finding; `short` leaves out the evidence. */
export function findingCard(rec, finding, at, short) {
  const longest = momentOf(rec, finding);
  const first = finding.threads.find((thread) => rec.life[thread]);
  return h(
    'article',
    {
      class: `card finding ${finding.proved ? 'proved' : 'inferred'}`,
      id: `finding-${at}`,
      tabindex: short ? null : '-1',
    },
    h(
      'h3',
      {},
      h('a', {href: linkTo({view: 'findings', finding: at})}, finding.kind),
      h('span', {class: 'tag'}, finding.proved ? 'proved' : 'inferred'),
    ),
    h('p', {class: short ? 'clamp' : null}, finding.text),
    h(
      'p',
      {class: 'links'},
      longest
        ? spanLink(rec, longest.thread, longest.span, 'Longest wait in the timeline')
        : first !== undefined
          ? momentLink(
              rec,
              rec.life[first][0],
              rec.life[first][1],
              {thread: first, span: null, object: null},
              'Show in the timeline',
            )
          : null,
      finding.objects.map((named) => {
        const index = objectOf(rec, finding, named);
        return index < 0 ? null : objectLink(rec, index);
      }),
    ),
    short
      ? null
      : [
          h(
            'p',
            {},
            h('span', {class: 'quiet'}, `${counted(finding.threads.length, 'thread')}: `),
            finding.threads
              .slice(0, 12)
              .map((thread, place) => [place ? ', ' : '', threadLink(rec, thread)]),
            finding.threads.length > 12 ? ', …' : null,
          ),
          h(
            'div',
            {class: 'evidence'},
            finding.evidence.map((evidence) =>
              h(
                'section',
                {},
                h('h4', {}, threadLink(rec, evidence.thread), ` ${evidence.what}`),
                evidence.stack === null ? null : stackList(rec, rec.stackOf(evidence.stack)),
              ),
            ),
          ),
        ],
  );
}

/** Draws all findings. */
export function findingsView(rec, at) {
  const cards = rec.findings.map((finding, index) => findingCard(rec, finding, index, false));
  if (cards[at.finding]) {
    cards[at.finding].classList.add('selected');
    setTimeout(() => cards[at.finding].scrollIntoView({block: 'start'}), 0);
  }
  return h(
    'div',
    {class: 'page'},
    h(
      'h1',
      {},
      rec.findings.length === 0 ? 'No findings' : counted(rec.findings.length, 'finding'),
    ),
    rec.findings.length === 0
      ? h(
          'p',
          {},
          rec.recording.too_little_seen
            ? 'Most calls were not recorded, so problems may be missing here.'
            : 'Unspool found no problem in this recording.',
        )
      : null,
    cards,
  );
}
