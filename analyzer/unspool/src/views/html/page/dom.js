// Elements from names, attributes and children. Text becomes text nodes, never HTML.

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'style')
      for (const [key, to] of Object.entries(value)) element.style.setProperty(key, to);
    else element.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child);
  }
  return element;
}

/** An HTML element. */
export function h(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** An SVG element. */
export function svg(name, attributes, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', name), attributes, children);
}

/** Names and what they stand for; rows without a value are left out. */
export function facts(rows) {
  return h(
    'dl',
    {class: 'facts'},
    rows.filter(Boolean).map(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]),
  );
}

/** The head of a table; names that begin with `#` stand over numbers. */
export function tableHead(...names) {
  return h(
    'thead',
    {},
    h(
      'tr',
      {},
      names.map((name) =>
        h(
          'th',
          {scope: 'col', class: name.startsWith('#') ? 'number' : null},
          name.replace(/^#/, ''),
        ),
      ),
    ),
  );
}

/** A list with a button that shows the rest, so that a long list stays quick. */
export function shortList(items, limit, draw, wrap) {
  const list = wrap(items.slice(0, limit).map(draw));
  if (items.length > limit) {
    const more = h('button', {class: 'more', type: 'button'}, `Show ${items.length - limit} more`);
    more.addEventListener('click', () => {
      const next = items.splice(limit, 500);
      if (items.length <= limit) more.remove();
      else more.textContent = `Show ${items.length - limit} more`;
      list.append(...next.map(draw));
    });
    items = items.slice();
    return [list, more];
  }
  return [list];
}

/** The value of a colour that the style defines for the present theme. */
export function themeColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
