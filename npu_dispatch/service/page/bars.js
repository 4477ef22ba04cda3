// Bars: a row for each stream, of parts that fill it up to 100 %.

// `parts`: [{ name, shade }]. `rows`: [{ name, shares, text }], a share for each part.
export function drawBars(id, parts, rows) {
  const box = document.getElementById(id);
  const names = JSON.stringify([parts, rows.map((row) => row.name)]);
  if (box.dataset.names !== names) {
    box.dataset.names = names;
    box.className = "bars";
    box.replaceChildren(...rows.map((row) => emptyBar(row, parts)));
    if (parts.length > 1) box.append(legend(parts));
  }
  rows.forEach(({ shares, text }, i) => {
    const [, bar, note] = box.children[i].children;
    shares.forEach((share, k) => {
      bar.children[k].style.width = `${100 * share}%`;
      bar.children[k].title = `${parts[k].name} ${percent(share)}`;
    });
    note.textContent = text;
  });
}

export function percent(share) {
  return `${(100 * share).toFixed(share && share < 0.1 ? 1 : 0)} %`;
}

function emptyBar({ name }, parts) {
  const row = made("div", "row");
  const bar = made("div", "bar");
  bar.append(...parts.map((part) => painted(made("i"), part)));
  row.append(made("span", "name", name), bar, made("span", "note"));
  return row;
}

function legend(parts) {
  const list = made("ul", "legend");
  list.append(...parts.map((part) => {
    const entry = made("li", "", part.name);
    entry.prepend(painted(made("i"), part));
    return entry;
  }));
  return list;
}

function painted(element, part) {
  element.style.background = `var(${part.shade})`;
  return element;
}

function made(tag, name = "", text = "") {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.textContent = text;
  return element;
}
