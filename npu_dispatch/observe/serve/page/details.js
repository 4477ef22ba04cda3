// The tables of a process, and what stands on those that are folded up.

import { fillTable, setBar, setText } from "./tables.js";
import { bytes, count, duration, percent, words } from "./units.js";
import { drawWaits } from "./waits.js";

const MOST_THREADS = 6; // host threads in the picture of waits
const NOBODY = "external event wait"; // a task, as the engine calls it
const byId = (id) => document.getElementById(id);

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
