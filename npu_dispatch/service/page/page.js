// The live page: takes snapshots from api/v1/events and draws them.

import { drawBars, percent } from "./bars.js";
import { drawOverTime, forgetCharts } from "./charts.js";
import { drawHeat, duration } from "./heat.js";
import { drawWaits } from "./waits.js";

const KEEP = 120; // snapshots
const MOST_STREAMS = 16; // lines in one chart
const MOST_THREADS = 6; // host threads in the picture of waits
const history = [];
const byId = (id) => document.getElementById(id);
let chosen = null; // slot of the process shown
let picked = false; // by somebody
let due = false;

const SHARES = [{ name: "busy", shade: "--device-bound" },
  { name: "starved", shade: "--launch-bound" }, { name: "waiting", shade: "--blocked" },
  { name: "idle", shade: "--faint" }];
const FILL = [{ name: "queued", shade: "--hue-0" }];

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function title(process) {
  const rank = process.rank === "" ? "" : `rank ${process.rank}, `;
  return `${process.name || process.slot}: ${rank}pid ${process.pid}`;
}

// Those that have launched something, who needs people first.
function worthShowing(processes) {
  return processes.filter((process) => process.launched)
    .sort((a, b) => a.attention - b.attention);
}

// Nobody's charts are taken away for less than a process that stands still.
const URGENT = 1; // hung, failed

function choice(processes) {
  const shown = processes.find((p) => p.slot === chosen);
  const worst = processes[0];
  if (!shown) return worst;
  const calls = !picked && worst.attention <= URGENT && shown.attention > URGENT;
  return calls ? worst : shown;
}

function drawVerdicts(processes, others) {
  byId("verdicts").replaceChildren(...processes.map((process) => {
    const { kind, text } = process.verdict;
    const button = element("button", "", { class: "verdict", "data-kind": kind,
      "aria-pressed": process.slot === chosen });
    button.style.setProperty("--shade", `var(--${kind})`);
    button.append(element("b", text), element("small", title(process)));
    button.addEventListener("click", () => choose(process.slot));
    return button;
  }));
  const some = others === 1 ? "1 process has" : `${others} processes have`;
  if (others) {
    byId("verdicts").append(element("p", `${some} launched nothing and ${
      others === 1 ? "is" : "are"} not shown.`));
  } else if (!processes.length) {
    byId("verdicts").append(element("p", "No process uses the device."));
  }
  const select = byId("process");
  const wanted = processes.map((process) => process.slot).join();
  if (select.dataset.slots !== wanted) {
    select.dataset.slots = wanted;
    select.replaceChildren(...processes.map((process) =>
      element("option", title(process), { value: process.slot })));
  }
  select.value = chosen;
}

function drawCharts(process) {
  const past = history.map((snapshot) =>
    snapshot.processes.find((p) => p.slot === process.slot && p.pid === process.pid))
    .filter(Boolean);
  const times = past.map((p) => p.time);
  const streams = [...process.streams]
    .sort((a, b) => b.depth - a.depth || b.launches_per_s - a.launches_per_s)
    .slice(0, MOST_STREAMS).sort((a, b) => a.device - b.device || a.stream - b.stream);
  const line = (name, pick) => ({ name, values: past.map(pick) });

  drawOverTime("depth", times, streams.map(({ name }) => line(name,
    (p) => p.streams.find((s) => s.name === name)?.depth ?? null)),
    { range: (_, high) => [0, 1.1 * Math.max(9, high)], format: count });
  drawBars("time", SHARES, streams.map((s) => ({ name: s.name,
    shares: [s.busy, s.starved, s.held, Math.max(0, 1 - s.busy - s.starved - s.held)],
    text: `${percent(s.busy)} busy` })));
  drawBars("fill", FILL, streams.map((s) => ({ name: s.name, shares: [s.fill],
    text: `${s.depth} of ${s.capacity}` })));
  const worst = (p, name) => Math.max(0, ...p.streams.map((s) => s.latency_us[name]));
  drawOverTime("latency", times, [
    line("launch p50", (p) => p.launch_us?.p50 || null),
    line("launch p99", (p) => p.launch_us?.p99 || null),
    line("complete p50", (p) => worst(p, "p50") || null),
    line("complete p99", (p) => worst(p, "p99") || null),
  ], { logarithmic: true, range: decades, splits: powersOfTen, format: duration });
  drawHeat("heat", times, past.map((p) => p.latency_octaves));
  const reasons = Object.entries(process.syncs).filter(([, s]) => s.count || s.share)
    .map(([reason]) => reason);
  drawOverTime("syncs", times, reasons.map((reason) => line(reason.replaceAll("_", " "),
    (p) => p.syncs[reason]?.share ?? 0)),
    { stacked: true, range: (_, high) => [0, Math.max(0.01, 1.1 * high)], format: percent });
  const bytes = (name) => (p) => p.memory.reduce((sum, m) => sum + m[name], 0);
  drawOverTime("memory", times, ["allocated", "reserved", "peak", "deferred"].map((name) =>
    line(name, (p) => bytes(name)(p) / 2 ** 20)),
    { range: (_, high) => [0, 1.1 * Math.max(1, high)], format: mebibytes });
  drawWhoWaits(process);
}

function decades(low, high) {
  if (low === null) return [1, 1000];
  return [10 ** Math.floor(Math.log10(low)), 10 ** Math.ceil(Math.log10(high * 1.01))];
}

function powersOfTen(low, high) {
  const n = Math.round(Math.log10(high / low)) + 1;
  return Array.from({ length: n }, (_, i) => low * 10 ** i);
}

function count(n) {
  return n < 10_000 ? String(Number(n.toFixed(1))) : `${Number((n / 1000).toFixed(1))}k`;
}

function mebibytes(n) {
  return n < 1024 ? `${Number(n.toFixed(1))} MiB` : `${Number((n / 1024).toFixed(2))} GiB`;
}

function drawWhoWaits(process) {
  // Host threads only of what hangs: there are always some that wait briefly.
  const hosts = process.verdict.kind === "hung" ? process.waiting.slice(0, MOST_THREADS)
    .map((w) => ({ from: `host ${thread(w)}`, to: w.stream })) : [];
  const edges = [...process.waits_for, ...hosts];
  byId("waits-box").hidden = !edges.length;
  if (!edges.length) return;
  const heads = Object.fromEntries(process.streams.map((s) => [s.name, s.running]));
  drawWaits(byId("waits"), edges, heads, new Set(process.cycles.flat()));
}

function thread(wait) {
  return wait.main ? "main" : String(wait.thread);
}

function fillTable(id, rows, nothing = "") {
  const body = byId(id).tBodies[0];
  body.replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    row.append(...cells.map((cell) => element("td", cell)));
    return row;
  }));
  if (!rows.length && nothing) {
    const row = document.createElement("tr");
    const columns = byId(id).tHead.rows[0].cells.length;
    row.append(element("td", nothing, { colspan: columns, class: "nothing" }));
    body.append(row);
  }
}

function drawTables(process) {
  fillTable("streams", process.streams.map((s) => [s.name, s.state.replaceAll("_", " "),
    s.depth, s.running ?? "", short(s.running_at ?? ""),
    s.age_s === null ? "" : s.age_s.toFixed(1)]));
  fillTable("waiting", process.waiting.map((w) => [thread(w), short(w.at),
    w.reason.replaceAll("_", " "), w.stream, w.age_s.toFixed(1)]), "none");
  fillTable("lines", process.lines.map((line) => [short(line.at),
    line.reason.replaceAll("_", " "), percent(line.share), line.count,
    line.seconds.toFixed(3)]), "no host thread has waited");
  fillTable("errors", process.errors.map((e) => [e.stream,
    Object.entries(e.codes).map(([code, n]) => `${code.replaceAll("_", " ")} × ${n}`)
      .join(", "), e.failed, e.dropped]), "none");
  const kinds = Object.entries(process.reports);
  const found = kinds.filter(([, n]) => n);
  fillTable("reports", found.map(([kind, n]) => [kind.replaceAll("_", " "), n]),
    process.sanitizer ? "none" : "not looked for: npu-dispatch sanitize SCRIPT");
}

// "/long/way/train.py:12 in step" as "train.py:12 in step".
function short(line) {
  return line.replace(/^.*\/(?=[^/]*:\d)/, "");
}

function show() {
  due = false;
  const now = history.at(-1);
  if (!now) return;
  const processes = worthShowing(now.processes);
  const process = choice(processes);
  chosen = process?.slot ?? null;
  drawVerdicts(processes, now.processes.length - processes.length);
  if (process) {
    drawCharts(process);
    drawTables(process);
  }
  document.body.dataset.drawn = String(now.time);
}

function soon() {
  // Once per frame, however many snapshots came: the history comes at once.
  if (!due) requestAnimationFrame(show);
  due = true;
}

function choose(slot) {
  chosen = slot;
  picked = true;
  soon();
}

byId("process").addEventListener("change", (event) => choose(event.target.value));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  forgetCharts();
  soon();
});
document.addEventListener("visibilitychange", soon);

const RETRY_MS = 5000;

function connect() {
  const events = new EventSource("api/v1/events");
  events.addEventListener("snapshot", receive);
  events.onerror = () => {
    byId("connection").textContent = "no connection: trying again";
    // After an answer that is an error the browser itself does not try again.
    if (events.readyState === EventSource.CLOSED) setTimeout(connect, RETRY_MS);
  };
}

function receive(event) {
  const snapshot = JSON.parse(event.data);
  if (snapshot.time <= (history.at(-1)?.time ?? 0)) return; // again, after a break
  history.push(snapshot);
  if (history.length > KEEP) history.shift();
  byId("connection").textContent = "live";
  soon();
}

connect();
