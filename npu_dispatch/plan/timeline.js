"use strict";
// Without it the picture is there, too: it says at once what a bar is, and keeps
// what is in the middle there when the picture is widened.
for (const timeline of document.querySelectorAll(".timeline")) {
  const box = timeline.querySelector(".window");
  const said = timeline.querySelector("output");
  let width = box.scrollWidth;
  timeline.addEventListener("pointerover", (event) => {
    const title = event.target.querySelector?.(":scope > title");
    if (title) said.textContent = title.textContent;
  });
  timeline.addEventListener("change", () => {
    const middle = (box.scrollLeft + box.clientWidth / 2) / width;
    width = box.scrollWidth;
    box.scrollLeft = middle * width - box.clientWidth / 2;
  });
}
