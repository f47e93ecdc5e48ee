// Small parts that the page is drawn from: elements, numbers as text, bars, and an SVG plot with axes.
'use strict';
const $ = (id) => document.getElementById(id);
const SVG = 'http://www.w3.org/2000/svg';

// Children that are not elements become text; nothing of the data is ever read as markup.
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}
function draw(parent, tag, attributes = {}, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

const digits = (x) => (x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toFixed(2));
function scaled(x, base, units) {
  let i = 0;
  while (x >= base && i + 1 < units.length) { x /= base; ++i; }
  return `${i === 0 && Number.isInteger(x) ? x : digits(x)} ${units[i]}`;
}
const bytes = (n) => scaled(n, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB']);
const count = (n) => scaled(n, 1000, ['', 'k', 'M', 'B', 'T']).trim();
function time(s) {
  if (s === 0) return '0';
  if (s >= 1) return `${digits(s)} s`;
  if (s >= 1e-3) return `${digits(s * 1e3)} ms`;
  return s >= 1e-6 ? `${digits(s * 1e6)} µs` : `${digits(s * 1e9)} ns`;
}

function table(node, heads, rows) {
  node.replaceChildren(make('thead', {}, make('tr', {}, ...heads.map((h) => make('th', { class: h.n ? 'n' : '', scope: 'col' }, h.t)))));
  const body = make('tbody');
  for (const row of rows) {
    const cells = row.cells.map((c, i) => make('td', { class: [heads[i].n ? 'n' : '', heads[i].code ? 'code' : '', c && c.cls ? c.cls : ''].join(' ').trim() }, c && c.cls !== undefined ? c.t : String(c)));
    const line = make('tr', { class: row.pick ? 'pick' : '' }, ...cells);
    if (row.pick) {
      line.tabIndex = 0;
      line.addEventListener('click', row.pick);
      line.addEventListener('keydown', (e) => { if (e.key === 'Enter') row.pick(); });
    }
    if (row.on) line.classList.add('on');
    body.append(line);
  }
  node.append(body);
}

// rows: {label, parts: [{value, color, title}], text}; |whole| is the length of a full bar.
function bars(node, rows, whole) {
  node.replaceChildren();
  for (const row of rows) {
    const bar = make('div', { class: 'bar' });
    for (const part of row.parts) {
      if (part.value <= 0) continue;
      bar.append(make('i', { style: `width:${Math.min(100, (100 * part.value) / (row.whole || whole))}%;background:${part.color}`, title: part.title }));
    }
    node.append(make('span', { class: 't' }, row.label), make('span', { class: 'n' }, row.text), bar);
  }
}
function legend(node, entries) {
  node.replaceChildren(...entries.map(([color, text]) => make('span', {}, make('i', { style: `background:${color}` }), text)));
}

// Buttons of which one is pressed.
function choice(node, label, options, current, pick) {
  const group = make('span', {}, make('span', { class: 'soft' }, label));
  for (const [value, text] of options) {
    group.append(make('button', { type: 'button', 'aria-pressed': String(value === current), onclick: (e) => {
      for (const b of group.querySelectorAll('button')) b.setAttribute('aria-pressed', String(b === e.currentTarget));
      pick(value);
    } }, text));
  }
  node.append(group);
}

// A plot with axes, as wide as its place. x and y: {from, to, log, ticks: [[value, text]], label}.
class Plot {
  constructor(svg, x, y, height = 360) {
    const width = Math.max(300, Math.min(1100, svg.clientWidth || svg.parentElement.clientWidth - 40));
    this.box = { left: 62, right: width - 14, top: 14, bottom: height - 44 };
    this.x = x; this.y = y; this.svg = svg;
    svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    svg.replaceChildren();
    let last = -1e9;
    for (const [value, text] of x.ticks) {
      const at = this.px(value);
      if (at - last < 34 || at < this.box.left - 1 || at > this.box.right + 1) continue;
      last = at;
      draw(svg, 'line', { x1: at, x2: at, y1: this.box.top, y2: this.box.bottom, class: 'grid' });
      draw(svg, 'text', { x: at, y: this.box.bottom + 18, 'text-anchor': 'middle' }, text);
    }
    for (const [value, text] of y.ticks) {
      const at = this.py(value);
      if (at < this.box.top - 1 || at > this.box.bottom + 1) continue;
      draw(svg, 'line', { x1: this.box.left, x2: this.box.right, y1: at, y2: at, class: 'grid' });
      draw(svg, 'text', { x: this.box.left - 8, y: at + 4, 'text-anchor': 'end' }, text);
    }
    draw(svg, 'line', { x1: this.box.left, x2: this.box.right, y1: this.box.bottom, y2: this.box.bottom, class: 'axis' });
    draw(svg, 'text', { x: (this.box.left + this.box.right) / 2, y: height - 6, 'text-anchor': 'middle' }, x.label);
    draw(svg, 'text', { x: this.box.left, y: 10, 'text-anchor': 'start' }, y.label);
  }
  share(axis, v) {
    const f = axis.log ? Math.log : (n) => n;
    return (f(v) - f(axis.from)) / (f(axis.to) - f(axis.from) || 1);
  }
  px(v) { return this.box.left + this.share(this.x, v) * (this.box.right - this.box.left); }
  py(v) { return this.box.bottom - this.share(this.y, v) * (this.box.bottom - this.box.top); }
  line(points, color, dash = '') {
    draw(this.svg, 'polyline', { points: points.map(([x, y]) => `${this.px(x).toFixed(1)},${this.py(y).toFixed(1)}`).join(' '), fill: 'none', stroke: color, 'stroke-width': 2, 'stroke-dasharray': dash });
  }
  dot(x, y, color, filled, title, pick) {
    const node = draw(this.svg, 'circle', { cx: this.px(x), cy: this.py(y), r: 5, fill: filled ? color : 'var(--card)', stroke: color, 'stroke-width': 2, tabindex: 0, style: 'cursor:pointer' });
    draw(node, 'title', {}, title);
    if (pick) for (const event of ['click', 'mouseenter', 'focus']) node.addEventListener(event, pick);
  }
}
const COLORS = ['var(--a)', 'var(--b)', 'var(--c)', 'var(--d)', 'var(--e)', 'var(--f)'];

// Powers of ten with one or two steps between them.
function log_ticks(from, to, text) {
  const ticks = [];
  for (let e = Math.floor(Math.log10(from)); e <= Math.ceil(Math.log10(to)); ++e) {
    for (const m of to / from > 2000 ? [1] : [1, 2, 5]) ticks.push([m * 10 ** e, text(m * 10 ** e)]);
  }
  return ticks.filter(([v]) => v >= from * 0.999 && v <= to * 1.001);
}
