// The sections of the page, from the embedded data: `size` is the answer of the sizing room with tables and programs,
// `run` (may be absent) what a loaded model says of itself.
'use strict';
const DATA = JSON.parse($('data').textContent);
const size = DATA.size, run = DATA.run || null, encoder = size.model.kind === 'encoder', asked = size.question;
const CONFIGS = [['measured', 'measured'], ['spec', 'spec']];
const MEMORY = [['weights', 'var(--a)'], ['KV cache', 'var(--c)'], ['intermediates', 'var(--b)']];
const PARTS = [['body', 'var(--a)'], ['attention', 'var(--d)'], ['head', 'var(--c)'], ['between cards', 'var(--b)'], ['host', 'var(--f)']];

function show_head() {
  const m = size.model;
  $('title').textContent = `${DATA.name}: ${m.family} on ${asked.cards} card${asked.cards === 1 ? '' : 's'}`;
  document.title = `${DATA.name} on Spyre`;
  $('subtitle').textContent = `${count(size.parameters.total)} parameters, ${m.layers} layers of ${m.hidden}, ${m.heads} heads` +
    `${encoder ? '' : ` and ${m.kv_heads} KV heads`} of ${m.head_size}; ${asked.batch} ${encoder ? 'texts' : 'sequences'} of ${asked.context} tokens`;
  const rate = (c) => (encoder ? size.time[c].texts_per_second : size.time[c].decode_tokens_per_second);
  const fact = (text, value, cls = '') => make('div', { class: `fact ${cls}` }, make('b', {}, value), text);
  $('facts').append(
    fact('on each card of about 112 GB', size.fits ? 'It fits' : 'It does not fit', size.fits ? 'good' : 'bad'),
    fact(`${encoder ? 'texts' : 'tokens'} a second, measured rates`, count(rate('measured'))),
    fact(`${encoder ? 'texts' : 'tokens'} a second, spec rates`, count(rate('spec'))),
    fact('weights on each card', bytes(size.card.weight_bytes)),
    encoder ? fact('for one batch, measured rates', time(size.time.measured.batch.seconds)) : fact('KV cache on each card', bytes(size.card.kv_bytes)));
}

function show_fit() {
  const whole = size.limits.find((l) => l.name === 'card memory').limit, c = size.card;
  legend($('memory-legend'), MEMORY.map(([text, color]) => [color, text]));
  const values = [c.weight_bytes, c.kv_bytes, c.pool_bytes];
  bars($('memory'), [{ label: 'each card', parts: MEMORY.map(([t, color], i) => ({ value: values[i], color, title: `${t} ${bytes(values[i])}` })), text: `${bytes(c.total_bytes)} of ${bytes(whole)}` }], Math.max(whole, c.total_bytes));
  bars($('segments'), size.segments.map((s, i) => ({ label: `${i}: ${s.holds}`, parts: [{ value: s.used, color: s.holds.startsWith('pool') ? 'var(--b)' : 'var(--a)', title: bytes(s.used) }], text: s.holds === 'programs' ? 'not counted' : bytes(s.used) })), 16 * 2 ** 30);
  const amount = (l, n) => (l.unit === 'bytes' ? bytes(n) : `${n} ${l.unit}`);
  table($('limits'), [{ t: '' }, { t: 'limit' }, { t: 'asked', n: 1 }, { t: 'of', n: 1 }, { t: 'sure' }, { t: 'why' }], size.limits.map((l) => ({ cells: [{ t: l.met ? 'met' : 'broken', cls: l.met ? 'good' : 'bad' }, l.name, amount(l, l.used), amount(l, l.limit), l.confidence, l.why] })));
}

const speed = { cards: asked.cards, config: 'measured', per: 'all' };
function show_speed() {
  const groups = size.tables;
  if (!groups.some((g) => g.cards === speed.cards)) speed.cards = groups[0].cards;
  $('speed-text').textContent = `${encoder ? 'Tokens' : 'Tokens generated'} a second against batch, a line for each ${encoder ? 'length' : 'context'}. A hollow point does not fit the cards.`;
  choice($('speed-controls'), 'cards', groups.map((g) => [g.cards, String(g.cards)]), speed.cards, (v) => { speed.cards = v; draw_speed(); });
  choice($('speed-controls'), 'rates', CONFIGS, speed.config, (v) => { speed.config = v; draw_speed(); });
  if (!encoder) choice($('speed-controls'), 'of', [['all', 'all sequences'], ['one', 'each']], speed.per, (v) => { speed.per = v; draw_speed(); });
  draw_speed();
}
function draw_speed() {
  const rows = size.tables.find((g) => g.cards === speed.cards).rows;
  const value = (r) => (r.batch * (encoder ? r.context : 1)) / r[speed.config] / (speed.per === 'one' ? r.batch : 1);
  const contexts = [...new Set(rows.map((r) => r.context))], batches = [...new Set(rows.map((r) => r.batch))];
  const shown = contexts.length > 6 ? contexts.filter((c, i) => (contexts.length - 1 - i) % Math.ceil(contexts.length / 6) === 0) : contexts;
  const values = rows.filter((r) => shown.includes(r.context)).map(value), from = Math.min(...values) / 1.3, to = Math.max(...values) * 1.3;
  const plot = new Plot($('speed-chart'), { from: batches[0] / 1.15, to: batches[batches.length - 1] * 1.15, log: true, ticks: batches.map((b) => [b, String(b)]), label: encoder ? 'texts in a batch' : 'sequences in a batch' },
    { from, to, log: true, ticks: log_ticks(from, to, count), label: 'tokens a second' });
  shown.forEach((context, i) => {
    const line = rows.filter((r) => r.context === context), color = COLORS[i % COLORS.length];
    plot.line(line.map((r) => [r.batch, value(r)]), color);
    for (const r of line) {
      const text = `${r.batch} of ${r.context} tokens on ${speed.cards} card${speed.cards === 1 ? '' : 's'}, ${speed.config} rates: ${count(value(r))} tokens/s${speed.per === 'one' ? ' each' : ''}, ${time(r[speed.config])} a step, ${bytes(r.bytes)} on each card${r.fits ? '' : '; does not fit'}`;
      plot.dot(r.batch, value(r), color, r.fits, text, () => { $('speed-pick').textContent = text; });
    }
  });
  legend($('speed-legend'), shown.map((c, i) => [COLORS[i % COLORS.length], `${c} tokens`]));
}

function show_steps() {
  const rows = [];
  const kinds = encoder ? [['batch', 'the batch']] : [['prompt', `a prompt of ${asked.prompt}`], ['decode', 'decode, halfway'], ['decode_at_end', 'decode, at the end']];
  for (const [key, label] of kinds) {
    const longest = Math.max(...CONFIGS.map(([c]) => size.time[c][key].seconds));
    for (const [config] of CONFIGS) {
      const t = size.time[config][key], values = [t.body_seconds, t.attention_seconds, t.head_seconds, t.between_cards_seconds, t.host_seconds];
      rows.push({ label: `${label}, ${config}`, whole: longest, parts: PARTS.map(([name, color], i) => ({ value: values[i], color, title: `${name} ${time(values[i])}` })), text: time(t.seconds) });
    }
  }
  legend($('steps-legend'), PARTS.map(([text, color]) => [color, text]));
  bars($('steps-bars'), rows, 1);
}

function show_roofline() {
  const points = [], buckets = [...new Set(size.programs.map((p) => p.rows))];
  size.programs.forEach((p) => p.ops.forEach((op) => { if (op.macs > 0 && op.read + op.write > 0 && op.ns.measured > 0) points.push({ p, op, x: (2 * op.macs) / (op.read + op.write), y: (2 * op.macs) / op.ns.measured }); }));
  if (!points.length) { $('roofline').hidden = true; return; }
  const ceil = DATA.size.ceilings, xs = points.map((p) => p.x).concat(ceil.map((c) => c.gflops / c.gb_s));
  const from = Math.min(...xs) / 2, to = Math.max(...xs) * 3, top = Math.max(...ceil.map((c) => c.gflops)) * 1.5, low = Math.min(...points.map((p) => p.y), ...ceil.map((c) => c.gb_s * from)) / 2;
  const plot = new Plot($('roofline-chart'), { from, to, log: true, ticks: log_ticks(from, to, count), label: 'operations per byte of card memory' }, { from: low, to: top, log: true, ticks: log_ticks(low, top, (v) => `${count(v)}`), label: 'GFLOP/s, measured rates' });
  ceil.forEach((c, i) => plot.line([[from, Math.min(c.gflops, c.gb_s * from)], [c.gflops / c.gb_s, c.gflops], [to, c.gflops]], COLORS[i === 0 ? 0 : 5], i === 0 ? '' : '6 4'));
  for (const { p, op, x, y } of points) {
    const text = `${op.name} of ${label_of(p)} (${op.of}): ${digits(x)} FLOP/B, ${count(y)} GFLOP/s, ${time(op.ns.measured / 1e9)} on ${op.cores} cores`;
    plot.dot(x, y, COLORS[1 + (buckets.indexOf(p.rows) % 4)], true, text, () => { $('roofline-pick').textContent = text; });
  }
  legend($('roofline-legend'), [...ceil.map((c, i) => [COLORS[i === 0 ? 0 : 5], `${c.name}: ${count(c.gflops)} GFLOP/s, ${c.gb_s} GB/s`]), ...buckets.map((rows, i) => [COLORS[1 + (i % 4)], `products of a step of ${rows} row${rows === 1 ? '' : 's'}`])]);
}

const name_of = (p) => (p.name !== 'outer' ? p.name : p.part === 'head' ? 'output head' : 'around the blocks');
const label_of = (p) => `${name_of(p)}, ${p.rows} row${p.rows === 1 ? '' : 's'}`;
let view = null, current = 0;
function show_programs() {
  if (!size.programs.length) {
    for (const id of ['programs', 'scratchpad', 'rules']) $(id).hidden = true;
    return;
  }
  view = new GraphView($('graph'), (i) => show_op(size.programs[current], i));
  $('zoom-in').onclick = () => view.zoom(0.7);
  $('zoom-out').onclick = () => view.zoom(1 / 0.7);
  $('zoom-fit').onclick = () => view.fit();
  show_program(Math.max(0, size.programs.findIndex((p) => p.launches > 1)));
}
function show_program(index) {
  current = index;
  const p = size.programs[index];
  table($('program-list'), [{ t: 'program' }, { t: 'rows', n: 1 }, { t: 'runs in a step', n: 1 }, { t: 'operations', n: 1 }, { t: 'bundles', n: 1 }, { t: 'measured', n: 1 }, { t: 'spec', n: 1 }, { t: 'pool', n: 1 }, { t: 'restickified', n: 1 }],
    size.programs.map((q, i) => ({ on: i === index, pick: () => show_program(i), cells: [name_of(q), q.rows, q.launches, q.ops.length, q.bundles.length, time(q.ns.measured / 1e9), time(q.ns.spec / 1e9), bytes(q.pool_bytes), q.restickified_bytes ? bytes(q.restickified_bytes) : 'nothing'] })));
  view.show(p);
  $('detail').replaceChildren(make('span', { class: 'soft' }, 'Select an operation.'));
  const all = p.ops.reduce((sum, op) => sum + op.ns.measured, 0);
  table($('ops'), [{ t: 'operation' }, { t: 'of', code: 1 }, { t: 'cores', n: 1 }, { t: 'division', code: 1 }, { t: 'read', n: 1 }, { t: 'written', n: 1 }, { t: 'multiply-adds', n: 1 }, { t: 'measured', n: 1 }, { t: 'spec', n: 1 }, { t: 'share', n: 1 }],
    p.ops.map((op, i) => ({ op, i })).sort((a, b) => b.op.ns.measured - a.op.ns.measured).map(({ op, i }) => ({ pick: () => view.select(i),
      cells: [op.name, op.of, op.cores, op.splits.filter(([, n]) => n > 1).map(([d, n]) => `${d}/${n}`).join(' ') || '1', bytes(op.read), bytes(op.write), op.macs ? count(op.macs) : '', time(op.ns.measured / 1e9), time(op.ns.spec / 1e9), `${((100 * op.ns.measured) / (all || 1)).toFixed(1)}%`] })));
  show_scratchpad(p);
}
function show_op(p, i) {
  const op = p.ops[i], lines = [];
  const line = (what, b) => {
    const buffer = p.buffers[b], lx = buffer.lx ? (buffer.lx.resident ? `in the scratchpad at ${buffer.lx.address}` : `not in the scratchpad: ${buffer.lx.reason.replaceAll('_', ' ')}`) : '';
    lines.push([what, `%${buffer.value}`, buffer.axes.join(' x '), buffer.layout, `${buffer.home}${buffer.view ? ' (view)' : ''}`, bytes(buffer.bytes), lx]);
  };
  op.in.forEach((b) => b >= 0 && line('reads', b));
  op.out.forEach((b) => line('writes', b));
  const t = make('table');
  table(t, [{ t: '' }, { t: 'value', code: 1 }, { t: 'extents (logical to card)', code: 1 }, { t: 'layout', code: 1 }, { t: 'where' }, { t: 'bytes', n: 1 }, { t: '' }], lines.map((cells) => ({ cells })));
  const bound = op.time.compute > op.time.memory ? 'computing' : 'memory';
  $('detail').replaceChildren(make('p', {}, make('b', {}, op.name), ` of ${op.of || 'an output'}, bundle ${op.bundle}; ${op.cores} of 32 cores (${op.splits.map(([d, n]) => `${d}: ${n}`).join(', ') || 'undivided'}); computing ${time(op.time.compute / 1e9)}, memory ${time(op.time.memory / 1e9)}: bound by ${bound}`), make('div', { class: 'scroll' }, t));
}

function show_scratchpad(p) {
  const resident = p.buffers.map((b, i) => ({ b, i })).filter(({ b }) => b.lx && b.lx.resident);
  const budget = 1625344, known = p.buffers.some((b) => b.lx);
  $('lx-chart').replaceChildren();
  $('lx-chart').removeAttribute('viewBox');
  $('lx-chart').style.display = resident.length ? '' : 'none';
  $('lx-pick').textContent = '';
  if (!resident.length) {
    $('lx-text').textContent = known ? 'No buffer of this program stays in the scratchpad.' : 'These programs carry no verdicts on the scratchpad: every buffer between operators goes through card memory; stages of one operator hand on inside the card.';
    return;
  }
  $('lx-text').textContent = `Bytes of each core by address, over the operations of ${label_of(p)}; ${resident.length} buffers stay. The planner has ${budget} bytes of each core.`;
  const peak = Math.min(budget, 1.2 * Math.max(...resident.map(({ b }) => b.lx.address + b.lx.bytes_per_core)));
  const plot = new Plot($('lx-chart'), { from: 0, to: p.ops.length, ticks: p.ops.map((op, i) => [i, String(i)]), label: 'operation' }, { from: 0, to: peak, ticks: [0, 0.25, 0.5, 0.75, 1].map((s) => [s * peak, bytes(Math.round(s * peak))]), label: 'address' }, 300);
  resident.forEach(({ b, i }, n) => {
    const uses = p.ops.flatMap((op, at) => ([...op.in, ...op.out].some((x) => x >= 0 && base_of(p, x) === i) ? [at] : []));
    if (!uses.length) return;
    const x = plot.px(uses[0]), top = plot.py(b.lx.address + b.lx.bytes_per_core);
    const rect = draw(plot.svg, 'rect', { x, width: Math.max(3, plot.px(uses[uses.length - 1] + 1) - x), y: top, height: Math.max(2, plot.py(b.lx.address) - top), fill: COLORS[n % COLORS.length], 'fill-opacity': 0.75, tabindex: 0 });
    const text = `%${b.value}: ${bytes(b.lx.bytes_per_core)} of each core at ${b.lx.address}, operations ${uses[0]} to ${uses[uses.length - 1]}`;
    draw(rect, 'title', {}, text);
    for (const event of ['click', 'mouseenter', 'focus']) rect.addEventListener(event, () => { $('lx-pick').textContent = text; });
  });
}

function show_moved() {
  const rows = [], key = encoder ? 'batch' : 'decode', t = size.time.measured[key];
  rows.push({ cells: ['card memory, read', `${encoder ? 'one batch' : 'a step of decode'}, without keys`, '', bytes(t.read_bytes_without_keys)] });
  const moved = run && run.transfers && run.transfers.one_token_step;
  if (moved) {
    for (const [direction, text] of [['to_device', 'host to card'], ['to_host', 'card to host']]) {
      for (const [label, n] of Object.entries(moved[direction])) rows.push({ cells: [text, label.replaceAll('_', ' '), n.count, bytes(n.card_bytes)] });
    }
  }
  $('moved-text').textContent = moved ? 'Card memory by the cost model; between host and card as the software device counted a step of one token.' : 'By the cost model. Transfers between host and card are counted where the model is loaded with its weights.';
  table($('moved-table'), [{ t: 'between' }, { t: 'what' }, { t: 'times', n: 1 }, { t: 'bytes', n: 1 }], rows);
}

function show_rules() {
  table($('rules-table'), [{ t: 'rule' }, { t: 'what is refused' }, { t: 'met', n: 1 }], size.rules.map((r) => ({ cells: [`${r.number} ${r.title}`, r.refused, r.met] })));
}

show_head();
show_fit();
show_speed();
show_steps();
show_roofline();
show_programs();
show_moved();
show_rules();
$('notes-list').append(...[...size.advice, ...size.assumed].map((line) => make('li', {}, line)));
let resized;
addEventListener('resize', () => { clearTimeout(resized); resized = setTimeout(() => { draw_speed(); show_roofline(); if (view) { view.fit(); show_scratchpad(size.programs[current]); } }, 150); });
