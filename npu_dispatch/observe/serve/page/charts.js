// Charts over time, by uPlot: one cursor for all of them, and values in the legends.
// uPlot comes from a script of its own, and is a name of the window where it has come.
// Each chart is said in words, too: for screen readers, and where uPlot is missing.

import { clock } from "./tables.js";

const HEIGHT = 230, LANE = 120; // pixels, without the legend
const LEAST_SPAN = 10; // seconds; less is drawn as a part of that
const HUES = 8; // --hue-0 to --hue-7
const FONT = "12px system-ui, sans-serif";
const WIDTH_OF_LABELS = 68; // of all charts, so that moments are below each other
const CURSORS = "time"; // of the charts that share theirs
const charts = new Map(); // by the id of the element: { plot, names, now }
const hues = new Map(); // by the chart's id: the lines so far, which keep their colours
let zoomed = false;
let span = 60; // seconds

export function shade(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function hue(i) {
  return shade(`--hue-${i % HUES}`);
}

export function setSpan(seconds) {
  [span, zoomed] = [seconds, false];
}

// Draws lines or, with `stacked`, areas on top of each other.
// `times`: seconds since 1970. `series`: [{ name, values }], a value or null for each
// time, and perhaps its `shade`. `options`: `range` of the values that are shown,
// `format` of one as text, `logarithmic`, `stacked`, `splits` of the axis; `lane`: it is
// low, one of several; `timeless`: another
// chart below it has the times; `paint` and `read` instead of lines; `nothing`: the words where
// there is no line.
export function drawOverTime(id, times, series, options) {
  const box = document.getElementById(id);
  const now = { ...options, series, newest: times.at(-1) };
  say(box, times, now);
  if (!box.clientWidth || !globalThis.uPlot) return; // folded up, or not there
  const data = [times, ...(options.stacked ? sums(series) : series.map((s) => s.values))];
  const names = series.map((one) => one.name).join("\n");
  const chart = charts.get(id);
  if (chart?.names === names) {
    chart.now = now;
    chart.plot.setData(data);
    return;
  }
  forget(id);
  const made = { id, names, now };
  charts.set(id, made);
  made.plot = new uPlot(settings(made, box.clientWidth), data, box);
  made.plot.root.setAttribute("aria-hidden", "true");
  sizes.observe(box);
}

// What the chart shows, in a sentence behind it.
function say(box, times, { series, format, read, nothing = "" }) {
  let said = box.nextElementSibling;
  if (!said) {
    said = document.createElement("p");
    said.className = "alt";
    said.id = `${box.id}-said`;
    box.after(said);
    box.tabIndex = 0;
    box.setAttribute("role", "img");
    box.setAttribute("aria-label", box.previousElementSibling.textContent);
    box.setAttribute("aria-describedby", said.id);
    box.addEventListener("keydown", step);
  }
  const from = times.findLastIndex((time) => time < times.at(-1) - span) + 1;
  const parts = series.map(({ name, values }) => {
    if (read) return `${name}: ${read(null, values.length - 1)}`;
    const seen = values.slice(from).filter((value) => value !== null);
    if (!seen.length) return `${name}: none`;
    return `${name}: ${values.at(-1) === null ? "none" : format(values.at(-1))} now, ${
      format(Math.min(...seen))} to ${format(Math.max(...seen))}`;
  });
  said.textContent = parts.length ? `${parts.join("; ")}.` : nothing;
  box.classList.toggle("none", !series.length);
}

// The arrow keys move the cursor of all charts, Escape takes it away.
function step(event) {
  const { plot } = charts.get(event.currentTarget.id) ?? {};
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!plot || (!by && event.key !== "Escape")) return;
  event.preventDefault();
  const at = Math.min(plot.data[0].length - 1,
    Math.max(0, (plot.cursor.idx ?? plot.data[0].length) + (by ?? 0)));
  plot.setCursor({ left: by ? plot.valToPos(plot.data[0][at], "x") : -10, top: by ? 1 : -10 });
}

function forget(id) {
  charts.get(id)?.plot.destroy();
  charts.delete(id);
}

// They are made anew when they are drawn next, in the colours of then.
export function forgetCharts() {
  [...charts.keys()].forEach(forget);
}

const sizes = new ResizeObserver((changes) => {
  for (const { target } of changes) {
    const plot = charts.get(target.id)?.plot;
    const width = target.clientWidth;
    if (plot && width && plot.width !== width) plot.setSize({ width, height: plot.height });
  }
});

// The double click that shows the whole time again, before uPlot hears of it.
addEventListener("dblclick", () => { zoomed = false; }, { capture: true });

function sums(series) {
  let sum = [];
  return series.map(({ values }) => {
    sum = values.map((value, i) => (value ?? 0) + (sum[i] ?? 0));
    return sum;
  });
}

function settings(chart, width) {
  const { now } = chart;
  const grid = { stroke: shade("--line"), width: 1 };
  const axis = { stroke: shade("--dim"), grid, ticks: { ...grid, size: 5 }, font: FONT };
  return {
    width, height: now.lane ? LANE : HEIGHT, padding: [8, 30, 0, 0],
    scales: {
      x: { auto: () => !zoomed, range: (_, low, high) => (zoomed ? [low, high]
        : [Math.min(Math.max(low, high - span), high - LEAST_SPAN), high]) },
      y: { distr: now.logarithmic ? 3 : 1, range: (_, low, high) => chart.now.range(low, high) },
    },
    axes: [
      { ...axis, space: 90, size: now.timeless ? 6 : 28,
        values: (_, splits) => splits.map((at) => (now.timeless ? "" : clock(at))) },
      { ...axis, space: 26, size: WIDTH_OF_LABELS,
        ...(now.splits && { splits: (_, __, low, high) => chart.now.splits(low, high) }),
        values: (_, splits) => splits.map((at) => (at === null ? "" : chart.now.format(at))) },
    ],
    series: [
      { label: "time", value: (_, at) => clock(at ?? chart.now.newest) },
      ...now.series.map((one, i) => oneSeries(chart, one, i)),
    ],
    bands: now.stacked ? now.series.slice(1).map((_, i) => ({ series: [i + 2, i + 1] })) : [],
    cursor: {
      sync: { key: CURSORS, scales: ["x", null] }, drag: { x: true, y: false },
      y: Boolean(now.paint), points: { show: !now.paint, size: 7 },
    },
    legend: { markers: { width: 0, fill: (_, i) => (i ? swatch(chart.id, chart.now.series[i - 1]) : "transparent") } },
    hooks: {
      setSelect: [(plot) => { zoomed ||= plot.select.width > 0; }],
      draw: now.paint ? [(plot) => chart.now.paint(plot)] : [],
    },
  };
}

// Lines beyond the number of hues are dashed.
function look(id, { name, shade: given }) {
  if (given) return { colour: shade(given), dashed: false };
  if (!hues.has(id)) hues.set(id, []);
  const known = hues.get(id);
  if (!known.includes(name)) known.push(name);
  const i = known.indexOf(name);
  return { colour: hue(i), dashed: i % (2 * HUES) >= HUES };
}

function oneSeries(chart, one, i) {
  const { paint, stacked } = chart.now;
  const { colour, dashed } = look(chart.id, one);
  return {
    label: one.name, stroke: colour, width: stacked ? 0 : 1.75, dash: dashed ? [6, 4] : [],
    points: { show: false, size: 4, fill: colour, filter: alone },
    ...(paint && { paths: () => null }),
    ...(stacked && { fill: `${colour}b0` }),
    // `at` is null where nobody points: the newest is shown then.
    value: (plot, _, __, at) => {
      const { format, read, series } = chart.now;
      const { values } = series[i];
      if (read) return read(plot, at ?? values.length - 1);
      const value = values[at ?? values.length - 1] ?? null;
      return value === null ? "–" : format(value);
    },
  };
}

// The values that no line leads to or from: they are drawn as points.
function alone(plot, i) {
  const values = plot.data[i];
  return values.flatMap((value, at) =>
    ((value ?? null) !== null && (values[at - 1] ?? null) === null
      && (values[at + 1] ?? null) === null ? [at] : []));
}

function swatch(id, one) {
  const { colour, dashed } = look(id, one);
  return dashed ? `repeating-linear-gradient(90deg, ${colour} 0 4px, transparent 4px 7px)`
    : colour;
}

// How long tasks take, over time: a row for each power of two of microseconds.
// `columns`: for each time, how many tasks took [less than 1 µs, less than 2, 4, ...].
export function drawHeat(id, times, columns) {
  const rows = Math.max(0, ...columns.map((column) => column.length));
  const used = columns.flatMap((column) => column.flatMap((n, row) => (n ? [row] : [])));
  const lowest = Math.max(0, Math.min(rows, ...used) - 1);
  const highest = Math.max(lowest + 4, Math.max(0, ...used) + 2);
  const most = Math.max(1, ...columns.flat());
  const edges = Array.from({ length: highest - lowest + 1 }, (_, i) => lowest + i);
  drawOverTime(id, times, [{ name: "tasks", values: times.map(() => null) }], {
    range: () => [lowest, highest],
    splits: () => edges.filter((edge) => edge > 0 && edge % 2 === 1),
    format: (edge) => octave(2 ** (edge - 1)),
    paint: (plot) => paintHeat(plot, times, columns, most),
    read: (plot, at) => readHeat(plot, columns[at] ?? []),
  });
}

function paintHeat(plot, times, columns, most) {
  const { ctx, bbox } = plot;
  const x = (seconds) => plot.valToPos(seconds, "x", true);
  const y = (row) => plot.valToPos(row, "y", true);
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.fillStyle = shade("--strong");
  columns.forEach((column, i) => {
    // The tasks since the reading before; as long before the first as after it.
    const since = times[i - 1] ?? 2 * times[i] - (times[i + 1] ?? times[i] + 1);
    const [left, right] = [x(since), x(times[i])];
    column.forEach((n, row) => {
      if (!n) return;
      ctx.globalAlpha = 0.15 + 0.85 * Math.sqrt(n / most);
      ctx.fillRect(left, y(row + 1), right - left - 0.5, y(row) - y(row + 1) - 0.5);
    });
  });
  ctx.restore();
}

function readHeat(plot, column) {
  const all = column.reduce((sum, n) => sum + n, 0);
  const { event, top } = plot?.cursor ?? {}; // no event: it follows another chart's
  if (!event || top < 0) return String(all);
  const row = Math.floor(plot.posToVal(top, "y"));
  const from = row > 0 ? octave(2 ** (row - 1)) : "0";
  return `${column[row] ?? 0} of ${all} in ${from} to ${octave(2 ** row)}`;
}

function octave(us) {
  return us < 1000 ? `${us} µs` : us < 1e6 ? `${Math.round(us / 1e3)} ms`
    : `${Math.round(us / 1e6)} s`;
}
