// Who waits for whom: host threads and streams as circles, with an arrow for a wait.

const HEIGHT = 240, ACROSS = 300, MARGIN = 110, RADIUS = 9; // pixels

// `edges`: [{ from, to }]. `heads`: by stream, what is at its head. `circle`: the
// streams that wait for each other.
export function drawWaits(box, edges, heads, circle) {
  const names = [...new Set(edges.flatMap((edge) => [edge.from, edge.to]))];
  const width = box.clientWidth;
  const places = new Map(names.map((name, i) => [name, place(i, names.length, width)]));
  const said = edges.map(({ from, to }) => `${from} waits for ${to}`).join("; ");
  const picture = svg("svg", { width, height: HEIGHT, role: "img", "aria-label": said });
  const defs = svg("defs");
  const tip = svg("marker", { id: "tip", viewBox: "0 0 8 8", refX: 8, refY: 4,
    markerWidth: 8, markerHeight: 8, orient: "auto" });
  tip.append(svg("path", { d: "M0 0L8 4L0 8z", class: "tip" }));
  defs.append(tip);
  picture.append(defs);
  for (const { from, to } of edges) {
    picture.append(arrow(places.get(from), places.get(to)));
  }
  for (const name of names) {
    picture.append(...node(name, places.get(name), heads[name], circle.has(name), width));
  }
  box.replaceChildren(picture);
}

function place(i, n, width) {
  const angle = Math.PI + (2 * Math.PI * i) / n; // the first at the left
  const across = Math.min(ACROSS, width / 2 - Math.min(MARGIN, width / 6));
  return { x: width / 2 + across * Math.cos(angle),
    y: HEIGHT / 2 + (HEIGHT / 2 - 56) * Math.sin(angle) };
}

function arrow(from, to) {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  const gap = RADIUS + 5;
  const [dx, dy] = [(gap * (to.x - from.x)) / length, (gap * (to.y - from.y)) / length];
  return svg("line", { x1: from.x + dx, y1: from.y + dy, x2: to.x - dx, y2: to.y - dy,
    class: "edge", "marker-end": "url(#tip)" });
}

function node(name, { x, y }, head, inCircle, width) {
  const up = y < HEIGHT / 2 - 1;
  const lines = head ? [name, head] : [name];
  const top = up ? y - RADIUS - 8 - 15 * (lines.length - 1) : y + RADIUS + 17;
  const label = svg("text", { "text-anchor": "middle", class: "node" });
  label.append(...lines.map((line, i) => {
    const half = Math.min(width / 2, 3.3 * line.length); // of the line, about
    const middle = Math.max(half, Math.min(width - half, x));
    const part = svg("tspan", { x: middle, y: top + 15 * i, class: i ? "head" : "who" });
    part.textContent = line;
    return part;
  }));
  const dot = svg("circle", { cx: x, cy: y, r: RADIUS, class: inCircle ? "stuck" : "dot" });
  return [dot, label];
}

function svg(tag, attributes = {}) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
