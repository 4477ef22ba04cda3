// Charts over time, by uPlot: one cursor for all of them, and values in the legends.
// uPlot comes from a script of its own, and is a name of the window.

const HEIGHT = 230; // pixels, without the legend
const LEAST_SPAN = 10; // seconds; less is drawn as a part of that
const HUES = 8; // --hue-0 to --hue-7
const FONT = "12px system-ui, sans-serif";
const CURSORS = "time"; // of the charts that share theirs
const charts = new Map(); // by the id of the element: { plot, names, now }
let zoomed = false;

export function shade(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function hue(i) {
  return shade(`--hue-${i % HUES}`);
}

export function clock(seconds) {
  return new Date(1000 * seconds).toLocaleTimeString([], { hourCycle: "h23" });
}

// Draws lines or, with `stacked`, areas on top of each other.
// `times`: seconds since 1970. `series`: [{ name, values }], a value or null for each
// time. `options`: `range` of the values that are shown, `format` of one as text,
// `logarithmic`, `stacked`, `splits` of the axis; `paint` and `read` instead of lines.
export function drawOverTime(id, times, series, options) {
  const now = { ...options, series, newest: times.at(-1) };
  const data = [times, ...(options.stacked ? sums(series) : series.map((s) => s.values))];
  const names = series.map((one) => one.name).join("\n");
  const chart = charts.get(id);
  if (chart?.names === names) {
    chart.now = now;
    chart.plot.setData(data);
    return;
  }
  forget(id);
  const box = document.getElementById(id);
  const made = { names, now };
  charts.set(id, made);
  made.plot = new uPlot(settings(made, box.clientWidth), data, box);
  sizes.observe(box);
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
    if (plot && width && plot.width !== width) plot.setSize({ width, height: HEIGHT });
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
    width, height: HEIGHT, padding: [8, 14, 0, 0],
    scales: {
      x: { auto: () => !zoomed, range: (_, low, high) => (zoomed ? [low, high]
        : [Math.min(low, high - LEAST_SPAN), high]) },
      y: { distr: now.logarithmic ? 3 : 1, range: (_, low, high) => chart.now.range(low, high) },
    },
    axes: [
      { ...axis, space: 90, size: 34, values: (_, splits) => splits.map(clock) },
      { ...axis, space: 26, size: widthOfLabels,
        ...(now.splits && { splits: (_, __, low, high) => chart.now.splits(low, high) }),
        values: (_, splits) => splits.map((at) => (at === null ? "" : chart.now.format(at))) },
    ],
    series: [
      { label: "time", value: (_, at) => clock(at ?? chart.now.newest) },
      ...now.series.map(({ name }, i) => oneSeries(chart, name, i)),
    ],
    bands: now.stacked ? now.series.slice(1).map((_, i) => ({ series: [i + 2, i + 1] })) : [],
    cursor: {
      sync: { key: CURSORS, scales: ["x", null] }, drag: { x: true, y: false },
      y: Boolean(now.paint), points: { show: !now.paint, size: 7 },
    },
    legend: { markers: { width: 0, fill: (_, i) => (i ? swatch(i - 1) : "transparent") } },
    hooks: {
      setSelect: [(plot) => { zoomed ||= plot.select.width > 0; }],
      draw: now.paint ? [(plot) => chart.now.paint(plot)] : [],
    },
  };
}

function oneSeries(chart, label, i) {
  const { paint, stacked } = chart.now;
  return {
    label, stroke: hue(i), width: stacked ? 1 : 1.75, dash: i < HUES ? [] : [6, 4],
    points: { show: false, size: 4, fill: hue(i), filter: alone },
    ...(paint && { paths: () => null }),
    ...(stacked && { fill: `${hue(i)}b0` }),
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

function swatch(i) {
  return i < HUES ? hue(i)
    : `repeating-linear-gradient(90deg, ${hue(i)} 0 4px, transparent 4px 7px)`;
}

// The axis is as wide as its longest label.
function widthOfLabels(_, labels) {
  return 18 + 7 * Math.max(2, ...(labels ?? []).map((label) => label.length));
}
