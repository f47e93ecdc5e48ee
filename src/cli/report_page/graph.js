// The graph of a program: operations in layers by what they wait for, buffers as lines; moved and zoomed by its viewBox.
'use strict';
const NODE = { width: 178, height: 46, gapX: 26, gapY: 42 };

function base_of(program, b) {
  const buffer = program.buffers[b];
  return buffer.view ? buffer.base : b;
}

// Nodes {op or buffer, layer, column} and edges {from, to, buffer}.
function layered(program) {
  const nodes = [], edges = [], writer = new Map(), end_node = new Map();
  const end = (b) => {
    if (!end_node.has(b)) {
      end_node.set(b, nodes.length);
      nodes.push({ buffer: b, layer: 0 });
    }
    return end_node.get(b);
  };
  let previous = -1;
  program.ops.forEach((op, i) => {
    const me = nodes.length;
    nodes.push({ op: i, layer: 0 });
    const waits = new Map();
    for (const b of op.in) {
      if (b < 0) continue;
      const home = base_of(program, b), kind = program.buffers[home].home;
      if (writer.has(home)) waits.set(writer.get(home), b);
      else if (kind === 'input' || kind === 'state') waits.set(end(home), b);
    }
    // A stage of one operator goes on with what the stage before left in the card.
    if (i > 0 && program.ops[i - 1].out.length === 0 && program.ops[i - 1].graph_op === op.graph_op) waits.set(previous, -1);
    for (const [from, buffer] of waits) {
      edges.push({ from, to: me, buffer });
      nodes[me].layer = Math.max(nodes[me].layer, nodes[from].layer + 1);
    }
    for (const b of op.out) writer.set(base_of(program, b), me);
    previous = me;
  });
  for (const [b, from] of writer) {
    if (program.buffers[b].home !== 'output') continue;
    edges.push({ from, to: nodes.length, buffer: b });
    nodes.push({ buffer: b, layer: nodes[from].layer + 1 });
  }
  // Inputs stand just above their first reader.
  for (const [, n] of end_node) nodes[n].layer = Math.max(0, Math.min(...edges.filter((e) => e.from === n).map((e) => nodes[e.to].layer)) - 1);
  place(nodes, edges);
  return { nodes, edges };
}

// Columns by the mean place of what a node waits for, a few times down and up.
function place(nodes, edges) {
  const layers = [];
  for (const node of nodes) (layers[node.layer] ||= []).push(node);
  for (let l = 0; l < layers.length; ++l) layers[l] ||= [];
  const spread = () => layers.forEach((layer) => layer.forEach((node, i) => { node.column = i - (layer.length - 1) / 2; }));
  spread();
  for (let pass = 0; pass < 4; ++pass) {
    for (const layer of pass % 2 ? [...layers].reverse() : layers) {
      for (const node of layer) {
        const near = edges.filter((e) => (pass % 2 ? nodes[e.from] : nodes[e.to]) === node).map((e) => nodes[pass % 2 ? e.to : e.from].column);
        node.wish = near.length ? near.reduce((a, b) => a + b, 0) / near.length : node.column;
      }
      layer.sort((a, b) => a.wish - b.wish);
    }
    spread();
  }
  for (const node of nodes) {
    node.x = node.column * (NODE.width + NODE.gapX);
    node.y = node.layer * (NODE.height + NODE.gapY);
  }
}

function op_class(op) {
  if (op.name === 'batchmatmul') return 'matmul';
  if (op.name === 'restickify' || op.name === 'identity' || op.name === 'concat') return 'moves';
  return op.name === 'attention' || op.name === 'kv_store' ? 'attends' : '';
}

class GraphView {
  constructor(svg, pick) {
    this.svg = svg; this.pick = pick; this.pointers = new Map();
    svg.addEventListener('wheel', (e) => { e.preventDefault(); this.zoom(e.deltaY > 0 ? 1.15 : 1 / 1.15, e.clientX, e.clientY); }, { passive: false });
    svg.addEventListener('pointerdown', (e) => { this.pointers.set(e.pointerId, [e.clientX, e.clientY]); this.moved = 0; });
    svg.addEventListener('pointermove', (e) => this.drag(e));
    for (const end of ['pointerup', 'pointercancel', 'pointerleave']) svg.addEventListener(end, (e) => this.pointers.delete(e.pointerId));
  }
  show(program) {
    const { nodes, edges } = layered(program);
    this.svg.replaceChildren();
    for (const e of edges) {
      const a = nodes[e.from], b = nodes[e.to], y1 = a.y + NODE.height, x1 = a.x + NODE.width / 2, x2 = b.x + NODE.width / 2;
      const bend = Math.max(20, (b.y - y1) / 2), buffer = program.buffers[e.buffer];
      const kind = e.buffer < 0 || (buffer.lx && buffer.lx.resident) ? 'lx' : buffer.view ? 'view' : '';
      const path = draw(this.svg, 'path', { d: `M${x1},${y1} C${x1},${y1 + bend} ${x2},${b.y - bend} ${x2},${b.y}`, class: kind });
      draw(path, 'title', {}, e.buffer < 0 ? 'inside the card' : `%${buffer.value} ${buffer.layout} ${bytes(buffer.bytes)}`);
    }
    this.boxes = new Map();
    for (const node of nodes) this.box(program, node);
    const xs = nodes.map((n) => n.x), ys = nodes.map((n) => n.y);
    const left = Math.min(...xs) - 20, top = Math.min(...ys) - 20;
    this.whole = [left, top, Math.max(...xs) + NODE.width + 20 - left, Math.max(...ys) + NODE.height + 20 - top];
    this.fit();
  }
  box(program, node) {
    const op = node.op === undefined ? null : program.ops[node.op];
    const g = draw(this.svg, 'g', { transform: `translate(${node.x},${node.y})`, class: op ? `node ${op_class(op)}` : 'end' });
    draw(g, 'rect', { width: NODE.width, height: NODE.height, rx: 6 });
    const buffer = op ? null : program.buffers[node.buffer];
    const out = op && op.out.length ? program.buffers[op.out[0]] : null;
    const short = (s) => (s.length > 25 ? `${s.slice(0, 24)}…` : s);
    draw(g, 'text', { x: 9, y: 18 }, short(op ? op.name : `%${buffer.value}`));
    draw(g, 'text', { x: 9, y: 35, class: 'note' }, short(op ? `${time(op.ns.measured / 1e9)} · ${op.cores} core${op.cores === 1 ? '' : 's'}${out ? ` · ${out.layout}` : ''}` : `${buffer.home} ${buffer.layout}`));
    if (!op) return;
    this.boxes.set(node.op, g);
    g.style.cursor = 'pointer';
    g.addEventListener('click', () => { if (!(this.moved > 6)) this.select(node.op); });
  }
  select(i) {
    for (const g of this.boxes.values()) g.classList.remove('on');
    if (this.boxes.has(i)) this.boxes.get(i).classList.add('on');
    this.pick(i);
  }
  set(view) { this.view = view; this.svg.setAttribute('viewBox', view.join(' ')); }
  // The whole width where that can be read, else the top of the graph at a size that can.
  fit() {
    const [x, y, w, h] = this.whole, ratio = (this.svg.clientHeight || 500) / (this.svg.clientWidth || 800);
    const width = Math.min(Math.max(w, h / ratio), Math.max(w, (this.svg.clientWidth || 800) * 1.35));
    this.set([x + w / 2 - width / 2, y, width, width * ratio]);
  }
  zoom(factor, clientX, clientY) {
    const box = this.svg.getBoundingClientRect(), [x, y, w, h] = this.view;
    const fx = clientX === undefined ? 0.5 : (clientX - box.left) / box.width, fy = clientY === undefined ? 0.5 : (clientY - box.top) / box.height;
    const width = Math.min(Math.max(w * factor, 150), Math.max(...this.whole.slice(2)) * 4);
    this.set([x + fx * (w - width), y + fy * (h - (width * h) / w), width, (width * h) / w]);
  }
  drag(e) {
    const before = this.pointers.get(e.pointerId);
    if (!before) return;
    const box = this.svg.getBoundingClientRect(), scale = this.view[2] / box.width;
    if (this.pointers.size === 2) {
      const other = [...this.pointers].find(([id]) => id !== e.pointerId)[1];
      const length = (p) => Math.hypot(p[0] - other[0], p[1] - other[1]);
      this.zoom(length(before) / Math.max(1, length([e.clientX, e.clientY])), other[0], other[1]);
    } else {
      const dx = e.clientX - before[0], dy = e.clientY - before[1];
      this.moved += Math.abs(dx) + Math.abs(dy);
      this.set([this.view[0] - dx * scale, this.view[1] - dy * scale, this.view[2], this.view[3]]);
    }
    this.pointers.set(e.pointerId, [e.clientX, e.clientY]);
  }
}
