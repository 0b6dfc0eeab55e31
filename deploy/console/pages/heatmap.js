// All nodes as cells, by one figure: a canvas that keys and pointers walk over, and a table says the same.

import { colour, el } from "./dom.js";

const VIRIDIS = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137], [53, 183, 121], [109, 205, 89], [180, 222, 44], [253, 231, 37]];

/** The colour of a share, 0 to 1; it gets lighter with the share, so that it reads in grey, too. */
export function shade(share) {
  const at = Math.min(1, Math.max(0, share)) * (VIRIDIS.length - 1), low = Math.floor(at), rest = at - low;
  const high = VIRIDIS[Math.min(low + 1, VIRIDIS.length - 1)];
  return `rgb(${VIRIDIS[low].map((part, index) => Math.round(part + (high[index] - part) * rest)).join(" ")})`;
}

export const ramp = (span) => el("canvas.ramp", { width: 90, height: 8, "aria-hidden": "true" }, span ?? "");
export function drawRamp(canvas) {
  const pen = canvas.getContext("2d");
  for (let at = 0; at < 90; at++) { pen.fillStyle = shade(at / 89); pen.fillRect(at, 0, 1, 8); }
}

/**
 * @param {(node: number) => void} seen the cell under pointer or keys; -1: none
 * @param {(node: number) => void} chosen clicked, or Enter
 */
export function heatmap(label, seen, chosen) {
  const canvas = el("canvas", { tabIndex: 0, role: "application", "aria-label": label });
  const state = { cells: [], columns: 1, size: 20, at: -1 };

  function draw() {
    const width = canvas.clientWidth || 800, count = state.cells.length, ratio = devicePixelRatio || 1;
    const size = Math.max(11, Math.min(44, Math.floor(Math.sqrt((width * Math.min(320, innerHeight * .4)) / Math.max(1, count)))));
    const columns = Math.max(1, Math.floor(width / size)), height = Math.max(1, Math.ceil(count / columns)) * size;
    Object.assign(state, { columns, size });
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
      canvas.style.height = `${height}px`;
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const gap = size > 16 ? 2 : 1, marks = { problem: colour("problem"), warning: colour("be") }, field = colour("field"), card = colour("card");
    state.cells.forEach((cell, index) => {
      const x = (index % columns) * size, y = Math.floor(index / columns) * size, side = size - gap;
      pen.fillStyle = cell.share === null ? field : shade(cell.share);
      pen.fillRect(x, y, side, side);
      const mark = marks[cell.severity];
      if (mark) triangle(pen, x + side, y, Math.max(6, size * .42), mark, card);
    });
    if (state.at >= 0) outline(pen, (state.at % columns) * size, Math.floor(state.at / columns) * size, size - gap);
  }

  function move(to) {
    if (!state.cells.length) return;
    state.at = Math.max(0, Math.min(state.cells.length - 1, to));
    draw();
    seen(state.at);
  }

  const under = (event) => {
    const box = canvas.getBoundingClientRect(), column = Math.floor((event.clientX - box.left) / state.size);
    const at = Math.floor((event.clientY - box.top) / state.size) * state.columns + column;
    return column < state.columns && at < state.cells.length ? at : -1;
  };
  canvas.addEventListener("pointermove", (event) => { const at = under(event); if (at !== state.at) { state.at = at; draw(); seen(at); } });
  canvas.addEventListener("pointerleave", () => { if (document.activeElement !== canvas) { state.at = -1; draw(); seen(-1); } });
  canvas.addEventListener("focus", () => { if (state.at < 0) move(0); });
  canvas.addEventListener("click", (event) => { const at = under(event); if (at >= 0) chosen(at); });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: state.columns, ArrowUp: -state.columns, Home: -1e9, End: 1e9 }[event.key];
    if (event.key === "Enter" && state.at >= 0) chosen(state.at);
    else if (step !== undefined) { event.preventDefault(); move(state.at + step); }
  });
  new ResizeObserver(draw).observe(canvas);
  addEventListener("theme", draw);
  /** @param {{name: string, share: number|null, severity: string}[]} cells */
  return { canvas, show(cells) { state.cells = cells; if (state.at >= cells.length) state.at = -1; draw(); if (state.at >= 0) seen(state.at); } };
}

function triangle(pen, right, top, size, fill, edge) {
  pen.beginPath();
  pen.moveTo(right - size, top); pen.lineTo(right, top); pen.lineTo(right, top + size); pen.closePath();
  pen.fillStyle = fill; pen.fill();
  pen.strokeStyle = edge; pen.lineWidth = 1;
  pen.beginPath(); pen.moveTo(right - size, top); pen.lineTo(right, top + size); pen.stroke();
}

function outline(pen, x, y, side) {
  pen.strokeStyle = colour("card"); pen.lineWidth = 5; pen.strokeRect(x + 1, y + 1, side - 2, side - 2);
  pen.strokeStyle = colour("accent"); pen.lineWidth = 3; pen.strokeRect(x + 1, y + 1, side - 2, side - 2);
}

