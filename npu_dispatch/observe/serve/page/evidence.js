// What a process did over time, and does now: its charts, its tables, and what stands on
// those that are folded up.

import { drawHeat, drawOverTime } from "./charts.js";
import { byId, bytes, count, duration, fillTable, percent, setBar, setText, words } from "./tables.js";

const DEVICE = [["busy", "--device-bound"], ["held", "--held"], ["starved", "--launch-bound"]];
const MEMORY = ["allocated", "reserved", "peak", "deferred"];
const MOST_THREADS = 6; // host threads in the picture of waits
const NOBODY = "external event wait"; // a task, as the engine calls it

// `history`: points of all processes, the oldest first.
export function drawCharts(process, history, newest) {
  const points = history.flatMap(({ tick, processes }) => {
    const found = processes.find((p) => p.id === process.id);
    return found ? [{ tick, ...found.trend }] : [];
  });
  // Clocks on walls may step; the ticks do not.
  const times = points.map(({ tick }) => tick + newest.time - newest.tick);
  const line = (name, pick, shade) => ({ name, values: points.map(pick), shade });
  const full = { stacked: true, lane: true, format: percent,
    range: (_, high) => [0, Math.max(1, Math.round(high))], splits: halves };

  const reasons = [...new Set(points.flatMap((p) => Object.keys(p.waits)))].sort();
  drawOverTime("host", times, reasons.map((reason) =>
    line(words(reason), (p) => p.waits[reason] ?? 0)),
    { ...full, timeless: true, nothing: "The host has not waited for the device." });
  const streams = Object.keys(process.trend.depths).sort(byNumbers);
  drawOverTime("queue", times, streams.map((name) => line(name, (p) => p.depths[name] ?? null)),
    { lane: true, timeless: true, range: (_, high) => [0, 1.1 * Math.max(4, high)], splits: wholes, format: count });
  drawOverTime("device", times, DEVICE.map(([name, shade]) =>
    line(name, (p) => p.device[name], shade)), full);

  const time = (kind, i) => (p) => p[kind][i] / 1e6 || null;
  drawOverTime("latency", times, [
    line("enqueue p50", time("launch_us", 0)), line("enqueue p99", time("launch_us", 1)),
    line("complete p50", time("latency_us", 0)), line("complete p99", time("latency_us", 1)),
  ], { logarithmic: true, range: decades, splits: powersOfTen, format: duration });
  drawHeat("heat", times, points.map((p) => p.octaves));
  drawOverTime("memory", times, MEMORY.map((name) => line(name, (p) => p.memory[name])),
    { range: (_, high) => [0, 1.1 * Math.max(2 ** 20, high)], splits: powersOfTwo, format: bytes });
}

function byNumbers(a, b) {
  return a.localeCompare(b, "en", { numeric: true });
}

function wholes(_, high) {
  const ten = 10 ** Math.floor(Math.log10(high / 3));
  return steps(high, Math.max(1, [1, 2, 5, 10].map((n) => n * ten).find((n) => n >= high / 3)));
}

function powersOfTwo(_, high) {
  return steps(high, 2 ** Math.ceil(Math.log2(high / 6)));
}

function steps(high, step) {
  return Array.from({ length: Math.floor(high / step) + 1 }, (_, i) => i * step);
}

function halves(_, high) {
  return [0, high / 2, high];
}

function decades(low, high) {
  if (low === null) return [1e-6, 1e-3];
  return [10 ** Math.floor(Math.log10(low)), 10 ** Math.ceil(Math.log10(high * 1.01))];
}

function powersOfTen(low, high) {
  const n = Math.round(Math.log10(high / low)) + 1;
  return Array.from({ length: n }, (_, i) => low * 10 ** i);
}

const head = (running) => (running === NOBODY
  ? "waits for an event nobody has recorded" : running ?? "");

// `places`: shortens lines.
export function fillDetails(process, places) {
  const { streams, waiting, errors } = process;
  const line = (at, title = at) => (cell) => {
    setText(cell, places(at));
    cell.title = title;
  };
  fillTable("lines", process.lines.map((one) => [line(one.at), words(one.reason),
    percent(one.share), count(one.count), duration(one.seconds)]),
    "No host thread has waited for the device.");
  fillTable("streams", streams.map((s) => [s.name, words(s.state), (cell) => setBar(cell, s),
    `${count(s.depth)} of ${count(s.capacity)}`, head(s.running), line(s.running_at ?? ""),
    s.age_s === null ? "" : duration(s.age_s)]), "none");
  fillTable("waiting", waiting.map((w) => [thread(w), line(w.at), words(w.reason), w.stream,
    duration(w.age_s)]), "none");
  fillTable("errors", errors.map((e) => [e.stream,
    e.text || Object.entries(e.codes).map(([code, n]) => `${words(code)} × ${n}`).join(", "),
    line(e.at), count(e.failed), count(e.dropped)]), "No task has failed.");
  const found = Object.entries(process.reports).filter(([, n]) => n);
  fillTable("reports", found.map(([kind, n]) => [words(kind), count(n)]), process.sanitizer
    ? "No race or misuse was found."
    : "Races are not looked for: npu-dispatch sanitize SCRIPT does.");
  fillSums(process, found);
  drawWhoWaits(process);
}

function fillSums({ streams, waiting, memory, errors, trend }, reports) {
  const used = streams.filter((s) => s.depth).length;
  setText(byId("streams-sum"), `${streams.length}, ${used} with tasks`);
  setText(byId("waiting-sum"), String(waiting.length));
  const [half, most] = trend.latency_us.map((us) => duration(us / 1e6));
  setText(byId("latency-sum"), trend.latency_us[0] ? `half of the tasks ${half}, 99 % below ${most}` : "no sample of late");
  const sum = (name) => bytes(memory.reduce((all, one) => all + one[name], 0));
  setText(byId("memory-sum"), `${sum("allocated")} of ${sum("limit")}`);
  const failed = errors.reduce((all, one) => all + one.failed, 0);
  const races = reports.reduce((all, [, n]) => all + n, 0);
  setText(byId("errors-sum"), failed || races ? `${failed} failed, ${races} reported` : "none");
}

function drawWhoWaits(process) {
  // Host threads only of what hangs: there are always some that wait briefly.
  const hosts = process.verdict.kind === "hung" ? process.waiting.slice(0, MOST_THREADS)
    .map((w) => ({ from: `host ${thread(w)}`, to: w.stream })) : [];
  const edges = [...process.waits_for, ...hosts];
  byId("waits-box").hidden = !edges.length;
  if (!edges.length) return;
  const heads = Object.fromEntries(process.streams.map((s) => [s.name, head(s.running)]));
  drawWaits(byId("waits"), edges, heads, new Set(process.cycles.flat()));
}

function thread(wait) {
  return wait.main ? "main" : String(wait.thread);
}

// Who waits for whom: host threads and streams as circles, with an arrow for a wait.
const HEIGHT = 240, ACROSS = 300, MARGIN = 110, RADIUS = 9; // pixels

// `edges`: [{ from, to }]. `heads`: by stream, what is at its head. `circle`: the
// streams that wait for each other.
function drawWaits(box, edges, heads, circle) {
  const names = [...new Set(edges.flatMap((edge) => [edge.from, edge.to]))];
  const width = box.clientWidth;
  const places = new Map(names.map((name, i) => [name, place(i, names.length, width)]));
  const said = edges.map(({ from, to }) => `${from} waits for ${to}`).join("; ");
  const picture = svg("svg", { width, height: HEIGHT, role: "img", "aria-label": said });
  const defs = svg("defs");
  const tip = svg("marker", { id: "tip", viewBox: "0 0 8 8", refX: 8, refY: 4,
    markerWidth: 8, markerHeight: 8, orient: "auto" });
  tip.append(svg("path", { d: "M0 0L8 4L0 8z", class: "tip" }));
  defs.append(tip);
  picture.append(defs);
  for (const { from, to } of edges) {
    picture.append(arrow(places.get(from), places.get(to)));
  }
  for (const name of names) {
    picture.append(...node(name, places.get(name), heads[name], circle.has(name), width));
  }
  box.replaceChildren(picture);
}

function place(i, n, width) {
  const angle = Math.PI + (2 * Math.PI * i) / n; // the first at the left
  const across = Math.min(ACROSS, width / 2 - Math.min(MARGIN, width / 6));
  return { x: width / 2 + across * Math.cos(angle),
    y: HEIGHT / 2 + (HEIGHT / 2 - 56) * Math.sin(angle) };
}

function arrow(from, to) {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  const gap = RADIUS + 5;
  const [dx, dy] = [(gap * (to.x - from.x)) / length, (gap * (to.y - from.y)) / length];
  return svg("line", { x1: from.x + dx, y1: from.y + dy, x2: to.x - dx, y2: to.y - dy,
    class: "edge", "marker-end": "url(#tip)" });
}

function node(name, { x, y }, head, inCircle, width) {
  const up = y < HEIGHT / 2 - 1;
  const lines = head ? [name, head] : [name];
  const top = up ? y - RADIUS - 8 - 15 * (lines.length - 1) : y + RADIUS + 17;
  const label = svg("text", { "text-anchor": "middle", class: "node" });
  label.append(...lines.map((line, i) => {
    const half = Math.min(width / 2, 3.3 * line.length); // of the line, about
    const middle = Math.max(half, Math.min(width - half, x));
    const part = svg("tspan", { x: middle, y: top + 15 * i, class: i ? "head" : "who" });
    part.textContent = line;
    return part;
  }));
  const dot = svg("circle", { cx: x, cy: y, r: RADIUS, class: inCircle ? "stuck" : "dot" });
  return [dot, label];
}

function svg(tag, attributes = {}) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
