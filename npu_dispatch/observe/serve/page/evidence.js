// What a process did over time: its charts.

import { drawOverTime } from "./charts.js";
import { drawHeat } from "./heat.js";
import { bytes, count, duration, percent, words } from "./units.js";

const DEVICE = [["busy", "--device-bound"], ["held", "--held"], ["starved", "--launch-bound"]];
const MEMORY = ["allocated", "reserved", "peak", "deferred"];

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
  const step = Math.max(1, [1, 2, 5, 10].map((n) => n * ten).find((n) => n >= high / 3));
  return Array.from({ length: Math.floor(high / step) + 1 }, (_, i) => i * step);
}

function powersOfTwo(_, high) {
  const step = 2 ** Math.ceil(Math.log2(high / 6));
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
