// What a process's verdict looks like: a symbol, a word and a colour for each kind.

import { setText } from "./tables.js";

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
  const box = document.getElementById("headline");
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
    document.getElementById("said").textContent = `${said}. ${text}`;
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
