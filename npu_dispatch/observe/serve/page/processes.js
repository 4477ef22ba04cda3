// Who is shown, in which order, which rank keeps the others waiting, and what a verdict
// looks like.

import { byId, clock, percent, setText } from "./tables.js";

const WAITS = 0.25; // a rank waits for this share of the time, or more
const MOST_KILLED = 3; // that are shown
const SLOW = 1.5; // attention of a straggler: behind what stands still

// `several`: processes of several users are shown.
function title({ name, user, rank, pid }, several) {
  return [name || "process", ...(rank === "" ? [] : [`rank ${rank}`]), `pid ${pid}`,
    ...(several ? [`user ${user}`] : [])].join(", ");
}

export function waits({ trend }) {
  return Object.values(trend.waits).reduce((sum, share) => sum + share, 0);
}

// The rank that waits least, where the others wait much, and more than twice as long.
export function straggler(processes) {
  const jobs = Map.groupBy(processes.filter((p) => p.rank !== "" && p.launched),
    (p) => `${p.job_id} ${p.world_size}`);
  for (const ranks of jobs.values()) {
    const [slow, ...others] = [...ranks].sort((a, b) => waits(a) - waits(b));
    if (!others.length) continue;
    const [least, theirs] = [waits(slow), waits(others[0])];
    if (theirs < WAITS || least > theirs / 2) continue;
    const text = `The other ranks wait for rank ${slow.rank}: their hosts wait ${
      percent(theirs)} of the time or more, its host ${percent(least)}.`;
    return { id: slow.id, text };
  }
  return null;
}

// Those that have launched something and those that were killed, who needs people first.
export function ones({ processes, killed }, slow) {
  const several = new Set([...processes, ...killed].map(({ user }) => user)).size > 1;
  const living = processes.filter((process) => process.launched).map((process) => {
    const late = process.id === slow?.id && process.attention > SLOW;
    const { verdict } = process;
    return {
      key: process.id, who: title(process, several), process, rank: process.rank,
      attention: late ? SLOW : process.attention,
      verdict: late ? { ...verdict, text: `${slow.text} ${withoutKind(verdict)}` } : verdict,
    };
  });
  const dead = killed.slice(0, MOST_KILLED).map((one) => ({
    key: `killed/${one.pid}`, who: title(one, several), rank: one.rank,
    // Somebody has started again since.
    attention: processes.some(({ began }) => began > one.tick) ? 5 : 0.5,
    verdict: {
      kind: "killed", at: one.at,
      text: `killed: it did not end by itself; found dead at ${clock(one.time)}.`,
      action: `\`npu-dispatch postmortem ${one.pid}\` says what it did; \`dmesg -T | grep -i kill\` says whether memory had run out.`,
    },
  }));
  return [...dead, ...living].sort((a, b) => a.attention - b.attention
    || Number(a.rank) - Number(b.rank));
}

// A symbol, a word and a colour for each kind of verdict.
const KINDS = {
  killed: ["†", "the process is gone"],
  stopped: ["■", "a signal or a debugger has stopped it"],
  hung: ["×", "no progress"],
  failed: ["!", "a stream refuses work"],
  blocked: ["‖", "Python waits for the device"],
  waiting: ["←", "collectives wait for other ranks"],
  held: ["↔", "streams wait for one another"],
  "launch-bound": ["»", "the device waits for launches"],
  "host-bound": ["≡", "Python does other work than launching"],
  "device-bound": ["✓", "the device is the limit, as it should be"],
  quiet: ["…", "nothing launched of late"],
  idle: ["–", "nothing launched"],
};

export function symbol(kind) {
  return KINDS[kind]?.[0] ?? "?";
}

// A symbol and the word. The element keeps its colour in --shade.
export function mark(element, kind) {
  element.style.setProperty("--shade", `var(--${kind})`);
  setText(element.querySelector(".mark"), symbol(kind));
  setText(element.querySelector(".word"), kind);
}

let said = "";

// `one`: { who, verdict }; `place`: at as it is shown.
export function drawHeadline(one, place) {
  const box = byId("headline");
  box.hidden = !one;
  if (!one) {
    said = "";
    return;
  }
  const { kind, text, action } = one.verdict;
  const part = (name) => box.querySelector(name);
  mark(box, kind);
  setText(part(".meaning"), KINDS[kind]?.[1] ?? "");
  setText(part("#who"), one.who);
  setText(part(".text"), withoutKind(one.verdict));
  part(".at").hidden = !place;
  setText(part(".at code"), place);
  part(".at code").title = one.verdict.at;
  part(".action").hidden = !action;
  setCode(part(".action span"), action);
  // Screen readers hear of a change of kind, and not each second of new figures.
  if (said !== `${one.who}: ${kind}`) {
    said = `${one.who}: ${kind}`;
    byId("said").textContent = `${said}. ${text}`;
  }
}

export function withoutKind({ kind, text }) {
  return text.startsWith(`${kind}: `) ? text.slice(kind.length + 2) : text;
}

// What is between backticks is something to type.
function setCode(element, text) {
  if (element.dataset.text === text) return;
  element.dataset.text = text;
  element.replaceChildren(...text.split("`").map((part, i) => {
    const piece = document.createElement(i % 2 ? "code" : "span");
    piece.textContent = part;
    return piece;
  }));
}
