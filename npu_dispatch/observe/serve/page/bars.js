// A bar of parts that fill it up to 100 %: what a stream's time goes to.

import { percent } from "./units.js";

const PARTS = [["busy", "--device-bound"], ["starved", "--launch-bound"],
  ["held", "--held"], ["idle", "--faint"]];

// `stream` has a share for each part but the last.
export function setBar(cell, stream) {
  if (!cell.firstElementChild) cell.replaceChildren(...emptyBar());
  const [bar, note] = cell.children;
  const idle = Math.max(0, 1 - stream.busy - stream.starved - stream.held);
  const shares = { ...stream, idle };
  PARTS.forEach(([name], i) => { bar.children[i].style.width = `${100 * shares[name]}%`; });
  bar.title = PARTS.map(([name]) => `${name} ${percent(shares[name])}`).join(", ");
  const most = PARTS.slice(0, 3).map(([name]) => name)
    .reduce((a, b) => (shares[b] > shares[a] ? b : a));
  note.textContent = `${percent(shares[most])} ${most}`;
}

function emptyBar() {
  const bar = document.createElement("span");
  bar.className = "bar";
  bar.append(...PARTS.map(([, shade]) => {
    const part = document.createElement("i");
    part.style.background = `var(${shade})`;
    return part;
  }));
  return [bar, document.createElement("small")];
}
