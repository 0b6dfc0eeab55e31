// Stacked areas with lines over them, on one axis of time. Null is a gap, and is drawn as one.

import { colour, el } from "./dom.js";
import { amount, clock } from "./words.js";

const LEFT = 58, BOTTOM = 22, TOP = 8, RIGHT = 8;
const WHOLE = new Set(["permille", "centi", "count"]);

/** A round number at or above. */
function rounded(value) {
  const power = 10 ** Math.floor(Math.log10(value)), part = value / power;
  return (part <= 1 ? 1 : part <= 2 ? 2 : part <= 2.5 ? 2.5 : part <= 5 ? 5 : 10) * power;
}

/**
 * @param {{name: string, colour: string, kind: "area"|"line"|"dash"}[]} parts in the order of the stack
 * @param {(index: number) => void} seen the moment under pointer or keys; -1: none
 * @param {(at_ms: number) => void} chosen clicked, or Enter
 */
export function chart(label, unit, height, parts, seen, chosen) {
  const canvas = el("canvas", { tabIndex: 0, role: "application", "aria-label": label });
  const state = { t_ms: [], by: {}, marks: [], at: -1, at_ms: null };
  const pen = canvas.getContext("2d");
  let width = 800, top = 1;
  const first = () => state.t_ms[0] ?? 0, last = () => state.t_ms.at(-1) ?? 1;
  const x = (t_ms) => LEFT + ((t_ms - first()) / Math.max(1, last() - first())) * (width - LEFT - RIGHT);
  const y = (value) => TOP + (1 - value / top) * (height - TOP - BOTTOM);
  const areas = parts.filter((one) => one.kind === "area"), lines = parts.filter((one) => one.kind !== "area");

  function draw() {
    width = canvas.clientWidth || 800;
    const ratio = devicePixelRatio || 1;
    Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    canvas.style.height = `${height}px`;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const stacked = state.t_ms.map((_, at) => areas.reduce((sum, one) => sum + (state.by[one.name]?.[at] ?? 0), 0));
    const most = Math.max(0, ...stacked, ...lines.flatMap((one) => (state.by[one.name] ?? []).filter((value) => value !== null)));
    top = Math.max(rounded(most * 1.04 || 1), WHOLE.has(unit) ? 4 : 0);  // four steps that have labels of their own
    grid();
    let below = state.t_ms.map(() => 0);
    for (const one of areas) below = area(one, below);
    for (const one of lines) stroke(one);
    for (const mark of state.marks) if (mark.at_ms >= first() && mark.at_ms <= last()) flag(x(mark.at_ms), mark.severity);
    if (state.at_ms !== null) rule(x(state.at_ms), "soft", [3, 3]);
    if (state.at >= 0) rule(x(state.t_ms[state.at]), "ink", []);
  }

  function grid() {
    pen.font = "11.5px system-ui, sans-serif"; pen.lineWidth = 1; pen.setLineDash([]);
    pen.textAlign = "right"; pen.textBaseline = "middle";
    for (let part = 0; part <= 4; part++) {
      const value = (top * part) / 4;
      pen.strokeStyle = colour("line"); pen.beginPath(); pen.moveTo(LEFT, y(value)); pen.lineTo(width - RIGHT, y(value)); pen.stroke();
      pen.fillStyle = colour("soft"); pen.fillText(amount(value, unit), LEFT - 7, y(value));
    }
    pen.textAlign = "center"; pen.textBaseline = "top";
    if (state.t_ms.length < 2) return;
    const count = Math.max(2, Math.min(7, Math.floor((width - LEFT) / 130)));
    for (let part = 0; part <= count; part++) {
      const t_ms = first() + ((last() - first()) * part) / count;
      pen.textAlign = part === 0 ? "left" : part === count ? "right" : "center";
      pen.fillText(clock(t_ms), x(t_ms), height - BOTTOM + 6);
    }
  }

  /** Runs of moments that are known and lie close: a gap is not painted over. */
  function* runs(values) {
    const step = typical(state.t_ms) * 3.5;
    let run = [];
    for (let at = 0; at < values.length; at++) {
      if (run.length && (values[at] === null || values[at] === undefined || state.t_ms[at] - state.t_ms[at - 1] > step)) { yield run; run = []; }
      if (values[at] !== null && values[at] !== undefined) run.push(at);
    }
    if (run.length) yield run;
  }

  function area(one, below) {
    const values = state.by[one.name] ?? [], above = below.map((value, at) => value + (values[at] ?? 0));
    pen.fillStyle = colour(one.colour);
    for (const run of runs(values)) {
      pen.beginPath();
      run.forEach((at, index) => pen[index ? "lineTo" : "moveTo"](x(state.t_ms[at]), y(above[at])));
      [...run].reverse().forEach((at) => pen.lineTo(x(state.t_ms[at]), y(below[at])));
      pen.closePath(); pen.globalAlpha = .82; pen.fill(); pen.globalAlpha = 1;
    }
    return above;
  }

  function stroke(one) {
    pen.strokeStyle = colour(one.colour); pen.lineWidth = 2; pen.setLineDash(one.kind === "dash" ? [6, 4] : []);
    for (const run of runs(state.by[one.name] ?? [])) {
      pen.beginPath();
      run.forEach((at, index) => pen[index ? "lineTo" : "moveTo"](x(state.t_ms[at]), y(state.by[one.name][at])));
      pen.stroke();
    }
    pen.setLineDash([]);
  }

  function rule(at, name, dash) {
    pen.strokeStyle = colour(name); pen.lineWidth = 1.5; pen.setLineDash(dash);
    pen.beginPath(); pen.moveTo(at, TOP); pen.lineTo(at, height - BOTTOM); pen.stroke(); pen.setLineDash([]);
  }

  function flag(at, severity) {
    pen.fillStyle = colour(severity); pen.strokeStyle = colour("card"); pen.lineWidth = 1;
    pen.beginPath(); pen.moveTo(at - 6, TOP); pen.lineTo(at + 6, TOP); pen.lineTo(at, TOP + 11); pen.closePath(); pen.fill(); pen.stroke();
  }

  const nearest = (event) => {
    const box = canvas.getBoundingClientRect(), share = (event.clientX - box.left - LEFT) / Math.max(1, width - LEFT - RIGHT);
    const t_ms = first() + share * (last() - first());
    let best = -1;
    state.t_ms.forEach((one, at) => { if (best < 0 || Math.abs(one - t_ms) < Math.abs(state.t_ms[best] - t_ms)) best = at; });
    return best;
  };
  const look = (at) => { state.at = at; draw(); seen(at); };
  canvas.addEventListener("pointermove", (event) => look(nearest(event)));
  canvas.addEventListener("pointerleave", () => look(-1));
  canvas.addEventListener("blur", () => look(-1));
  canvas.addEventListener("click", (event) => { const at = nearest(event); if (at >= 0) chosen(state.t_ms[at]); });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, PageUp: 10, PageDown: -10, Home: -1e9, End: 1e9 }[event.key];
    if (event.key === "Enter" && state.at >= 0) chosen(state.t_ms[state.at]);
    else if (step !== undefined && state.t_ms.length) {
      event.preventDefault();
      const from = state.at < 0 ? state.t_ms.length - 1 : state.at;
      look(Math.max(0, Math.min(state.t_ms.length - 1, from + step)));
    }
  });
  new ResizeObserver(draw).observe(canvas);
  addEventListener("theme", draw);
  /** `by`: by the parts' names, a value or null per moment. `marks`: {at_ms, severity}. */
  return { canvas, show(t_ms, by, marks = [], at_ms = null) { Object.assign(state, { t_ms, by, marks, at_ms }); if (state.at >= t_ms.length) state.at = -1; draw(); } };
}

function typical(t_ms) {
  const steps = t_ms.slice(1).map((one, at) => one - t_ms[at]).sort((a, b) => a - b);
  return steps[Math.floor(steps.length / 2)] ?? 1000;
}

export const legend = (parts, word) => el("div.legend", {}, ...parts.map((one) => {
  const swatch = el(one.kind === "area" ? "i" : "i.stroke");
  if (one.kind === "area") swatch.style.background = `var(--${one.colour})`;
  else { swatch.style.borderColor = `var(--${one.colour})`; if (one.kind === "dash") swatch.style.borderTopStyle = "dashed"; }
  return el("span.key", {}, swatch, word(one.name));
}));
