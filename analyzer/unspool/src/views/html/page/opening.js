// Opens the page's data, and shows what went wrong: the page is never blank.
import {h} from './dom.js';
import {inflate} from './embedded.js';

function fail(error) {
  document
    .getElementById('app')
    .replaceChildren(
      h(
        'div',
        {class: 'loading'},
        h('p', {}, 'This report could not be opened.'),
        h('pre', {}, String(error?.stack ?? error)),
        h('p', {}, 'It needs a browser of 2023 or later (Chromium 80, Firefox 113, Safari 16.4).'),
      ),
    );
}

async function open(start) {
  const began = performance.now();
  const problems = [];
  window.addEventListener('error', (event) => problems.push(String(event.message)));
  window.addEventListener('unhandledrejection', (event) => problems.push(String(event.reason)));
  document.addEventListener('securitypolicyviolation', (event) =>
    problems.push(`policy: ${event.violatedDirective} ${event.blockedURI}`),
  );
  const holder = document.getElementById('recording');
  const bytes = await inflate(holder.textContent);
  holder.remove();
  // For scripts and tests: the data, the page, and how long opening it took.
  window.unspool = {
    ...start(bytes),
    problems,
    opened_ms: performance.now() - began,
    ready_ms: performance.now(),
  };
}

/** Calls `start` with the page's data. It returns what scripts may look at. */
export function openPage(start) {
  open(start).catch(fail);
}

/** A link for keyboards that leads past the bar at the top. */
export function skipLink(main) {
  return h(
    'a',
    {
      class: 'skip',
      href: '#view',
      onclick: (event) => {
        event.preventDefault();
        main.focus();
      },
    },
    'Skip to the view',
  );
}

/** A button that switches between light and dark, and then calls `restyle`. */
export function themeButton(restyle) {
  const onclick = () => {
    const dark = matchMedia('(prefers-color-scheme: dark)').matches;
    const now = document.documentElement.dataset.theme ?? (dark ? 'dark' : 'light');
    document.documentElement.dataset.theme = now === 'dark' ? 'light' : 'dark';
    restyle();
  };
  return h(
    'button',
    {
      type: 'button',
      class: 'theme',
      title: 'Light or dark',
      'aria-label': 'Switch between light and dark',
      onclick,
    },
    '◐',
  );
}
