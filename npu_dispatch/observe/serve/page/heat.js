// How long tasks take, over time: a row for each power of two of microseconds.

import { drawOverTime, shade } from "./charts.js";

function octave(us) {
  return us < 1000 ? `${us} µs` : us < 1e6 ? `${Math.round(us / 1e3)} ms`
    : `${Math.round(us / 1e6)} s`;
}

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
    paint: (plot) => paint(plot, times, columns, most),
    read: (plot, at) => read(plot, columns[at] ?? []),
  });
}

function paint(plot, times, columns, most) {
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

function read(plot, column) {
  const all = column.reduce((sum, n) => sum + n, 0);
  const { event, top } = plot?.cursor ?? {}; // no event: it follows another chart's
  if (!event || top < 0) return String(all);
  const row = Math.floor(plot.posToVal(top, "y"));
  const from = row > 0 ? octave(2 ** (row - 1)) : "0";
  return `${column[row] ?? 0} of ${all} in ${from} to ${octave(2 ** row)}`;
}
