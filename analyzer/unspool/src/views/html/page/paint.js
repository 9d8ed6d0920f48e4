// Lanes as pixels. Each state has a colour and a pattern, so that it is readable without colour.
// A column of pixels that holds several states shows each with its share of the height.
import {STATES, STATE_COUNT} from './states.js';
import {themeColor} from './dom.js';

const TILE = 8;

/** Whether a pixel of the pattern is dark; `s` is the number of pixels of one CSS pixel. */
const PATTERNS = {
  running: () => true,
  runnable: (x) => x % 4 < 2,
  held: (x, y) => (x + y) % 8 < 5,
  others: (x, y) => x % 4 < 2 === y % 4 < 2,
  away: (x, y) => y % 4 < 1,
  stopped: (x, y) => x % 4 < 2 && y % 4 < 2,
  unknown: (x, y) => (x + y) % 8 === 0 || (x - y + 64) % 8 === 0,
  idle: () => false,
};

/** `#rrggbb` as a pixel of a canvas. */
export function pixelOf(color, over, part) {
  const read = (text, at) => parseInt(text.slice(1 + at * 2, 3 + at * 2), 16);
  const mixed = [0, 1, 2].map((at) =>
    Math.round(read(color, at) * (part ?? 1) + (over ? read(over, at) * (1 - (part ?? 1)) : 0)),
  );
  return ((255 << 24) | (mixed[2] << 16) | (mixed[1] << 8) | mixed[0]) >>> 0;
}

/** The tiles of all states for the present theme. */
export function makeTiles(scale) {
  const back = themeColor('lane');
  const step = Math.max(1, Math.round(scale));
  const size = TILE * step;
  const tiles = STATES.reduce((all, state) => {
    const tile = new Uint32Array(size * size);
    const dark = pixelOf(themeColor(state.key));
    const light = pixelOf(themeColor(state.key), back, state.key === 'held' ? 0.45 : 0.28);
    for (let y = 0; y < size; y += 1) {
      for (let x = 0; x < size; x += 1) {
        tile[y * size + x] = PATTERNS[state.key]((x / step) | 0, (y / step) | 0) ? dark : light;
      }
    }
    all[state.id] = tile;
    return all;
  }, []);
  return {
    tiles,
    size,
    step,
    idle: pixelOf(themeColor('idle')),
    back: pixelOf(back),
    none: pixelOf(themeColor('canvas')),
  };
}

const ORDER = STATES.map((state) => state.id);
const IDLE = 4;
const PURE = 0.985;

/** Paints one lane. `full` is what fills the lane's height: 1 for a thread, threads for a group. */
export function paintLane(pixels, width, x0, y0, height, columns, table, full, look) {
  const {tiles, size, step} = look;
  const middle = y0 + (height >> 1);
  for (let column = 0; column < columns; column += 1) {
    const x = x0 + column;
    let bottom = y0 + height;
    let alive = 0;
    let rest = 0;
    for (let at = 0; at < STATE_COUNT; at += 1) alive += table[at][column];
    if (alive <= 0.0005 * full) continue;
    if (full === 1) {
      let pure = -1;
      for (let at = 0; at < STATE_COUNT; at += 1)
        if (table[at][column] >= PURE * alive && alive > 0.02) pure = at;
      for (let y = y0; y < bottom; y += 1) pixels[y * width + x] = look.back;
      if (pure === IDLE) {
        for (let y = middle - step; y < middle + step; y += 1) pixels[y * width + x] = look.idle;
        continue;
      }
      if (pure >= 0) {
        const tile = tiles[pure];
        for (let y = y0; y < bottom; y += 1)
          pixels[y * width + x] = tile[(y % size) * size + (x % size)];
        continue;
      }
    }
    for (const state of ORDER) {
      const share = table[state][column];
      if (share <= 0) continue;
      if (state === IDLE) {
        for (
          let y = bottom - Math.max(step, Math.round((share / full) * height));
          y < bottom;
          y += 1
        )
          if (y >= y0) pixels[y * width + x] = look.back;
        if (bottom - step >= y0 && full > 1)
          for (let y = bottom - step; y < bottom; y += 1) pixels[y * width + x] = look.idle;
        continue;
      }
      // The next state gets the rounding error of this one, so that shares keep their sum.
      const exact = (share / full) * height + rest;
      const rows = Math.min(Math.round(exact), bottom - y0);
      rest = exact - rows;
      const tile = tiles[state];
      for (let y = bottom - rows; y < bottom; y += 1)
        pixels[y * width + x] = tile[(y % size) * size + (x % size)];
      bottom -= rows;
    }
  }
}

/** Paints a small picture of all threads: the minimap. */
export function paintOverview(context, width, height, table, colors) {
  let most = 0;
  for (let column = 0; column < width; column += 1) {
    let sum = 0;
    for (const state of ORDER) if (state !== IDLE) sum += table[state][column];
    most = Math.max(most, sum);
  }
  for (let column = 0; column < width; column += 1) {
    let bottom = height;
    for (const state of ORDER) {
      if (state === IDLE || table[state][column] <= 0) continue;
      const rows = (table[state][column] / most) * (height - 2);
      context.fillStyle = colors[state];
      context.fillRect(column, bottom - rows, 1, rows);
      bottom -= rows;
    }
  }
}
