// Numbers and lines as people read them.

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
