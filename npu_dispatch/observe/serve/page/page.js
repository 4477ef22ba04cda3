// The live page: takes snapshots from api/v1/events and answers: what should I look at?

import { forgetCharts, setSpan } from "./charts.js";
import { drawCharts, fillDetails } from "./evidence.js";
import { follow } from "./feed.js";
import { drawHeadline, mark, ones, straggler, symbol, waits, withoutKind } from "./processes.js";
import { byId, clock, count, duration, fillKeyed, percent, setBar, setText, shortener } from "./tables.js";

const KEPT_S = 600;
let history = []; // what is kept of each snapshot, the oldest first
let newest = null; // the snapshot
let heard = 0; // when it came, on the browser's own monotonic clock
let problem = { text: "connecting", lost: false };
let chosen = null; // key of the process shown
let picked = false; // by somebody
let last = null; // the process that was shown last
let paused = false;
let due = false;

// Nobody's charts are taken away for less than a process that stands still or is gone.
const URGENT = 1; // killed, stopped, hung, failed

function choice(all) {
  const shown = all.find((one) => one.key === chosen);
  const worst = all[0];
  if (!shown || (!picked && !shown.process)) return worst;
  const calls = !picked && worst.attention <= URGENT && shown.attention > URGENT;
  return calls ? worst : shown;
}

function rowOf(one) {
  const { process, verdict } = one;
  return { key: one.key, cells: [
    (cell) => drawButton(cell, one),
    (cell) => {
      if (!cell.firstElementChild) cell.innerHTML = '<i class="mark" aria-hidden="true"></i> <b class="word"></b>';
      mark(cell, verdict.kind);
      cell.title = withoutKind(verdict);
    },
    process ? (cell) => setBar(cell, process.trend.device) : "",
    process ? percent(waits(process)) : "",
    process ? count(process.launches_per_s) : "",
    process ? count(process.streams.reduce((sum, s) => sum + s.depth, 0)) : "",
  ] };
}

function drawButton(cell, one) {
  const button = cell.firstElementChild ?? document.createElement("button");
  if (!button.parentNode) {
    button.type = "button";
    button.addEventListener("click", () => choose(one.key));
    cell.replaceChildren(button);
  }
  setText(button, one.who);
  button.setAttribute("aria-pressed", one.key === chosen);
}

function drawNothing(now) {
  const what = last && `${last.who} ended, or is no longer seen, since ${clock(now.time)}.`;
  if (byId("nothing").hidden) setText(byId("ended"), what ?? "");
}

function show() {
  due = false;
  if (paused || !newest) return;
  const slow = straggler(newest.processes);
  const all = ones(newest, slow);
  const one = all.length ? choice(all) : null;
  chosen = one?.key ?? null;
  const process = one?.process;
  const places = shortener([...(process?.lines ?? []), ...(process?.waiting ?? [])]
    .map(({ at }) => at).concat(all.map(({ verdict }) => verdict.at ?? ""),
      (process?.streams ?? []).map((s) => s.running_at ?? "")));
  drawHeadline(one, places(one?.verdict.at ?? ""));
  if (!one) drawNothing(newest);
  last = one ?? last;
  byId("nothing").hidden = Boolean(one);
  const idle = newest.processes.filter((p) => !p.launched).length;
  setText(byId("others"), !idle ? "" : idle === 1
    ? "1 process has launched nothing and is not shown."
    : `${idle} processes have launched nothing and are not shown.`);
  byId("side").hidden = all.length < 2;
  setText(byId("straggler"), slow && slow.id !== process?.id ? slow.text : "");
  fillKeyed("processes", all.map(rowOf));
  byId("evidence").hidden = !process;
  if (process) {
    drawCharts(process, history, newest);
    fillDetails(process, places);
  } else {
    forgetCharts();
  }
  document.body.dataset.drawn = String(newest.tick);
  drawState();
}

// How the feed is, and how old the figures are where they do not come.
function drawState() {
  const age = newest ? (performance.now() - heard) / 1000 : 0;
  const live = !problem.text;
  document.body.dataset.feed = live ? "live" : newest ? "lost" : "none";
  setText(byId("connection"), live ? (paused ? "paused" : "live")
    : `${problem.text}${problem.lost ? ": trying again." : "."}`);
  setText(byId("age"), !newest ? "" : !live
    ? `These figures are ${duration(Math.max(1, Math.round(age)))} old, of ${clock(newest.time)}.`
    : paused ? `since ${byId("pause").dataset.since}` : "");
  const shown = last && chosen ? `${symbol(last.verdict.kind)} ${last.verdict.kind} – ${last.who} – ` : "";
  document.title = live ? `${shown}npu_dispatch` : `${problem.text} – npu_dispatch`;
}

function soon() {
  // Once per frame, however many snapshots came.
  if (!due) requestAnimationFrame(show);
  due = true;
}

function choose(key) {
  chosen = key;
  picked = true;
  soon();
}

function hear(name, data) {
  if (name === "history") {
    history = data;
    return;
  }
  // Once more what is known, after a break: the service has read nothing new.
  if (data.tick === newest?.tick) return;
  [newest, heard] = [data, performance.now()];
  changed("", false);
  history.push({ tick: data.tick, processes: data.processes.map(
    ({ id, pid, trend }) => ({ id, pid, trend })) });
  while (history[0].tick < data.tick - KEPT_S) history.shift();
  soon();
}

function changed(text, lost) {
  problem = { text, lost };
  drawState();
}

byId("unplotted").hidden = Boolean(globalThis.uPlot);
document.body.classList.toggle("plain", !globalThis.uPlot);
byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", paused);
  byId("pause").dataset.since = newest ? clock(newest.time) : "";
  drawState();
  soon();
});
for (const button of document.querySelectorAll("[data-span]")) {
  button.addEventListener("click", () => {
    setSpan(Number(button.dataset.span));
    for (const one of document.querySelectorAll("[data-span]")) {
      one.setAttribute("aria-pressed", one === button);
    }
    soon();
  });
}
for (const box of document.querySelectorAll("details")) box.addEventListener("toggle", soon);
byId("trace").addEventListener("click", async () => {
  const id = last?.process?.id;
  const url = `api/v1/trace?seconds=5${id === undefined ? "" : `&process=${id}`}`;
  setText(byId("trace-said"), "writing it");
  const answer = await fetch(url).catch(() => null);
  setText(byId("trace-said"), !answer ? "no connection" : answer.ok ? "" : (await answer.json()).error);
  if (!answer?.ok) return;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = "npu_trace.json";
  link.click();
  URL.revokeObjectURL(link.href);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  forgetCharts();
  soon();
});
document.addEventListener("visibilitychange", soon);
setInterval(drawState, 1000);
follow("api/v1/events", hear, changed);
