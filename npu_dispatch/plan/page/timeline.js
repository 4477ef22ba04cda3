"use strict";
// Without it the picture is there, too: it says what a bar is, and keeps what is in
// the middle there when the picture is widened.
for (const timeline of document.querySelectorAll(".timeline")) {
  const words = JSON.parse(timeline.dataset.words);
  const box = timeline.querySelector(".window");
  const said = timeline.querySelector("output");
  const sentence = ([what, where, took, at, late, depth]) =>
    at === undefined
      ? `host blocked: ${words[what]} at ${words[where]}: ${took} µs`
      : `${words[what]}: ${took} µs at ${at} µs, ${late} µs after its launch at ` +
        `${words[where]}; ${depth} queued`;
  let middle = 0.5;
  timeline.addEventListener("pointerover", (event) => {
    const bar = event.target.dataset?.b;
    if (bar) said.textContent = sentence(bar.split(","));
  });
  box.addEventListener("scroll", () => {
    middle = (box.scrollLeft + box.clientWidth / 2) / box.scrollWidth;
  });
  timeline.addEventListener("change", () => {
    box.scrollLeft = middle * box.scrollWidth - box.clientWidth / 2;
  });
}
