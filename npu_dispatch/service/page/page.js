// The live page: takes snapshots from api/v1/events and draws them.
"use strict";

const KEEP = 120; // snapshots
const MOST_STREAMS = 16; // lines in one chart
const MOST_THREADS = 6; // host threads in the picture of waits
const history = [];
const dark = matchMedia("(prefers-color-scheme: dark)");
const byId = (id) => document.getElementById(id);
let chosen = null; // slot of the process shown
let picked = false; // by somebody
let due = false;

const COLORS = ["#3b82d6", "#e0762f", "#3aa76d", "#b45fc9", "#d2a42c", "#2fa8b5",
  "#d9568d", "#7a8894"];
const CLOCK = { type: "date", nticks: 4, tickformat: "%H:%M:%S", tickangle: 0 };
const SHARE_NAMES = { held: "waiting", other: "idle" };
const SHARES = { busy: "#3aa76d", starved: "#e0a030", held: "#b45fc9", other: "#8a96a5" };

function style(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function draw(id, traces, layout = {}) {
  const grid = { gridcolor: style("--line"), zerolinecolor: style("--line") };
  Plotly.react(id, traces, {
    margin: { l: 52, r: 10, t: 6, b: 32 },
    paper_bgcolor: "transparent", plot_bgcolor: "transparent",
    font: { color: style("--ink"), size: 12 }, colorway: COLORS,
    legend: { orientation: "h", y: -0.16, font: { size: 11 }, traceorder: "normal" },
    hovermode: "closest", uirevision: chosen,
    ...layout,
    xaxis: { ...grid, automargin: true, ...layout.xaxis },
    yaxis: { ...grid, rangemode: "tozero", automargin: true, ...layout.yaxis },
  }, { displayModeBar: false, responsive: true });
}

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
      "aria-pressed": process.slot === chosen, style: `--shade: var(--${kind})` });
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
  const when = past.map((p) => new Date(1000 * p.time));
  const streams = [...process.streams]
    .sort((a, b) => b.depth - a.depth || b.launches_per_s - a.launches_per_s)
    .slice(0, MOST_STREAMS).sort((a, b) => a.device - b.device || a.stream - b.stream);
  const names = streams.map((s) => s.name);
  const labels = names.map((name) => `stream ${name}`);
  const line = (name, pick) => ({ name, x: when, y: past.map(pick), mode: "lines",
    line: { width: 1.6 } });

  draw("depth", names.map((name) => line(name,
    (p) => p.streams.find((s) => s.name === name)?.depth ?? null)),
    { showlegend: true, xaxis: CLOCK, yaxis: { tickformat: "~s",
      range: [0, 1.1 * Math.max(10, ...past.flatMap((p) => p.streams.map((s) => s.depth)))] } });
  const other = (s) => Math.max(0, 1 - s.busy - s.starved - s.held);
  draw("time", Object.keys(SHARES).map((share) => ({ type: "bar", orientation: "h",
    name: SHARE_NAMES[share] ?? share, y: labels,
    x: streams.map((s) => 100 * (share === "other" ? other(s) : s[share])),
    marker: { color: SHARES[share] } })),
    { barmode: "stack", xaxis: { range: [0, 100], ticksuffix: " %" } });
  draw("fill", [{ type: "bar", orientation: "h", y: labels,
    x: streams.map((s) => 100 * s.fill), marker: { color: COLORS[0] },
    text: streams.map((s) => `${s.depth} of ${s.capacity}`), cliponaxis: false,
    textposition: streams.map((s) => (s.fill < 0.5 ? "outside" : "inside")) }],
    { xaxis: { range: [0, 100], ticksuffix: " %" } });
  const worst = (p, name) => Math.max(0, ...p.streams.map((s) => s.latency_us[name]));
  draw("latency", [
    line("launch p50", (p) => p.launch_us?.p50 ?? null),
    line("launch p99", (p) => p.launch_us?.p99 ?? null),
    line("complete p50", (p) => worst(p, "p50") || null),
    line("complete p99", (p) => worst(p, "p99") || null),
  ], { xaxis: CLOCK, yaxis: { type: "log", rangemode: "normal" } });
  draw("heat", [{ type: "heatmap", x: when, y: octaveNames(process.latency_octaves.length),
    z: transpose(past.map((p) => p.latency_octaves.map((n) => n || null))),
    showscale: false, hoverongaps: false,
    colorscale: [[0, style("--faint")], [1, style("--strong")]] }],
    { xaxis: CLOCK, yaxis: { type: "category", rangemode: "normal" } });
  const reasons = Object.entries(process.syncs).filter(([, s]) => s.count || s.share)
    .map(([reason]) => reason);
  draw("syncs", reasons.map((reason) => ({ ...line(reason.replaceAll("_", " "),
    (p) => 100 * (p.syncs[reason]?.share ?? 0)), stackgroup: "waits" })),
    { showlegend: true, xaxis: CLOCK, yaxis: { ticksuffix: " %" } });
  const mib = (name) => (p) => p.memory.reduce((sum, m) => sum + m[name], 0) / 2 ** 20;
  draw("memory", ["allocated", "reserved", "peak", "deferred"].map((name) =>
    line(name, mib(name))), { xaxis: CLOCK });
  drawWaits(process);
}

// A row of the heatmap begins at its name.
function octaveNames(n) {
  return Array.from({ length: n }, (_, i) => (i === 0 ? "less" : duration(2 ** (i - 1))));
}

function duration(us) {
  return us < 1000 ? `${us} µs` : us < 1e6 ? `${Math.round(us / 1000)} ms`
    : `${Math.round(us / 1e6)} s`;
}

function transpose(columns) {
  const n = Math.max(0, ...columns.map((column) => column.length));
  return Array.from({ length: n }, (_, i) => columns.map((column) => column[i] ?? 0));
}

function drawWaits(process) {
  // Host threads only of what hangs: there are always some that wait briefly.
  const hosts = process.verdict.kind === "hung" ? process.waiting.slice(0, MOST_THREADS)
    .map((w) => ({ from: `host ${thread(w)}`, to: w.stream })) : [];
  const edges = [...process.waits_for, ...hosts];
  byId("waits-box").hidden = !edges.length;
  if (!edges.length) return;
  const names = [...new Set(edges.flatMap((edge) => [edge.from, edge.to]))];
  const at = Object.fromEntries(names.map((name, i) => {
    const angle = 2 * Math.PI * i / names.length;
    return [name, [Math.cos(angle), Math.sin(angle)]];
  }));
  const circle = new Set(process.cycles.flat());
  const heads = Object.fromEntries(process.streams.map((s) => [s.name, s.running]));
  const labels = names.map((n) => (heads[n] ? `${n}<br>${heads[n]}` : n));
  draw("waits", [{ x: names.map((n) => at[n][0]), y: names.map((n) => at[n][1]),
    mode: "markers+text", text: labels, cliponaxis: false,
    textposition: names.map((n) => (at[n][1] < -0.01 ? "bottom center" : "top center")),
    marker: { size: 18, color: names.map((n) => (circle.has(n) ? "#d33" : COLORS[0])) } }],
    { showlegend: false, xaxis: { visible: false, range: [-1.5, 1.5] },
      yaxis: { visible: false, range: [-1.5, 1.5], rangemode: "normal" },
      annotations: edges.map(({ from, to }) => ({ ax: at[from][0], ay: at[from][1],
        x: at[to][0], y: at[to][1], axref: "x", ayref: "y", text: "", showarrow: true,
        arrowhead: 2, standoff: 12, startstandoff: 12, arrowcolor: style("--ink") })) });
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

function percent(share) {
  return `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
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
dark.addEventListener("change", soon);
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
