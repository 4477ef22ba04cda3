// Numbers and lines as people read them, and tables whose rows stay the same elements
// while their figures change.

export const byId = (id) => document.getElementById(id);

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

export function percent(share) {
  return `${Number((100 * share).toFixed(share < 0.1 ? 1 : 0))} %`;
}

export function count(n) {
  if (n < 10_000) return Number(n.toFixed(n < 10 ? 1 : 0)).toLocaleString("en");
  const [size, unit] = n < 1e6 ? [1e3, "k"] : n < 1e9 ? [1e6, "M"] : [1e9, "G"];
  return `${Number((n / size).toPrecision(3))} ${unit}`;
}

export function bytes(n) {
  const power = Math.min(4, Math.floor(Math.log2(Math.max(1, n)) / 10));
  const unit = ["B", "KiB", "MiB", "GiB", "TiB"][power];
  return `${Number((n / 1024 ** power).toPrecision(3))} ${unit}`;
}

// "3 h 25 min" of 12345.6 seconds, "12 µs" of 12e-6.
export function duration(seconds) {
  const whole = Math.floor(seconds);
  const parts = [[86400, "d"], [3600, "h"], [60, "min"]];
  const first = parts.findIndex(([size]) => whole >= size);
  if (first >= 0) {
    const [size, unit] = parts[first];
    const [small, below] = parts[first + 1] ?? [1, "s"];
    const rest = Math.floor((whole % size) / small);
    return `${Math.floor(whole / size)} ${unit}${rest ? ` ${rest} ${below}` : ""}`;
  }
  const [size, unit] = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]
    .find(([least]) => seconds >= least) ?? [1e-9, "ns"];
  return `${Number((seconds / size).toPrecision(3))} ${unit}`;
}

export function clock(seconds) {
  return new Date(1000 * seconds).toLocaleTimeString([], { hourCycle: "h23" });
}

export function words(name) {
  return name.replaceAll("_", " ");
}

// Where "/long/way/train.py:12 in step" is told as "train.py:12 in step": with so many
// folders before the file as tell it from the other files among `lines`.
export function shortener(lines) {
  const split = (line) => line.split(/:(?=\d)/)[0].split("/").filter(Boolean);
  const files = [...new Set(lines.map((line) => split(line).join("/")))];
  const tail = (parts, n) => parts.slice(-n).join("/");
  return (line) => {
    const parts = split(line);
    let n = 1;
    while (n < parts.length && files.some((file) => file !== parts.join("/")
      && tail(file.split("/"), n) === tail(parts, n))) n += 1;
    return tail(parts, n) + line.slice(line.split(/:(?=\d)/)[0].length);
  };
}
