// Tables whose rows stay the same elements while their figures change.

import { percent } from "./units.js";

const byId = (id) => document.getElementById(id);

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// A cell is a text, or a function that fills it. Where there is little room a cell has
// the name of its column before it.
function fillRow(row, cells, head) {
  while (row.cells.length < cells.length) {
    row.insertCell().dataset.label = head.cells[row.cells.length - 1].textContent;
  }
  while (row.cells.length > cells.length) row.deleteCell(-1);
  cells.forEach((cell, i) => {
    if (typeof cell === "function") cell(row.cells[i]);
    else setText(row.cells[i], String(cell));
  });
}

export function fillTable(id, rows, nothing) {
  const body = byId(id).tBodies[0];
  byId(id).classList.toggle("empty", !rows.length);
  const wanted = rows.length ? rows : [[nothing]];
  while (body.rows.length > wanted.length) body.deleteRow(-1);
  wanted.forEach((cells, i) => {
    const row = body.rows[i] ?? body.insertRow();
    fillRow(row, cells, byId(id).tHead.rows[0]);
    row.cells[0].colSpan = rows.length ? 1 : byId(id).tHead.rows[0].cells.length;
  });
}

// `rows`: [{ key, cells, ... }]. A row goes where it belongs only while nobody points at
// the table or has the focus in it: nothing may change places under a finger.
export function fillKeyed(id, rows) {
  const body = byId(id).tBodies[0];
  const old = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const made = rows.map(({ key, cells }) => {
    const row = old.get(key) ?? document.createElement("tr");
    row.dataset.key = key;
    fillRow(row, cells, byId(id).tHead.rows[0]);
    old.delete(key);
    return row;
  });
  for (const row of old.values()) row.remove();
  if (!body.matches(":hover, :focus-within")) {
    made.forEach((row, i) => { if (body.rows[i] !== row) body.insertBefore(row, body.rows[i]); });
  } else {
    body.append(...made.filter((row) => !row.parentNode));
  }
}

// The parts of a bar, which fill it up to 100 %: what a stream's time goes to.
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
