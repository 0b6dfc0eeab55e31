// What was measured of a service, and the line that was learned of it: slowdown by the CPU of best-effort pods, as SVG.

import { t } from "./words.js";

const WIDTH = 800, HEIGHT = 300, LEFT = 58, RIGHT = 12, TOP = 12, BOTTOM = 40, RADIUS_MIN = 3, RADIUS_MAX = 14;
const SVG = "http://www.w3.org/2000/svg";

function part(name, given, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(given)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/**
 * @param {{minutes: number, from_pct: number, to_pct: number, slowdown_pct: number}[]} tenths
 * @param {{pct: number, low_pct: number, high_pct: number}[]} line from no best-effort work to a node full of it
 * @param {number|null} cap_pct null: none
 */
export function fit(label, { tenths, line, budget_pct, cap_pct }) {
  const measured = tenths.filter((one) => one.minutes > 0), values = [...measured.map((one) => one.slowdown_pct), ...line.map((one) => one.pct)];
  const top = Math.max(2 * budget_pct, ...values) * 1.05, low = Math.min(0, ...values), most = Math.max(1, ...measured.map((one) => one.minutes));
  const x = (pct) => LEFT + (pct / 100) * (WIDTH - LEFT - RIGHT);
  const y = (pct) => TOP + (1 - (Math.min(top, Math.max(low, pct)) - low) / (top - low)) * (HEIGHT - TOP - BOTTOM);
  const along = (figure) => line.map((one, at) => `${x((100 * at) / (line.length - 1)).toFixed(1)},${y(one[figure]).toFixed(1)}`);
  const text = (at, where, words, anchor = "middle") => part("text", { x: at, y: where, "text-anchor": anchor }, words);
  const picture = part("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, class: "fit" });
  for (let step = 0; step <= 4; step++) {
    const value = low + ((top - low) * step) / 4;
    picture.append(part("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }), text(LEFT - 7, y(value) + 4, `${value.toFixed(0)}%`, "end"), text(x(25 * step), HEIGHT - BOTTOM + 16, `${25 * step}%`));
  }
  picture.append(text(x(50), HEIGHT - 6, t("service.x")));
  if (line.length) picture.append(part("polygon", { class: "band", points: [...along("low_pct"), ...along("high_pct").reverse()].join(" ") }), part("polyline", { class: "slope", points: along("pct").join(" ") }));
  picture.append(part("line", { class: "budget", x1: LEFT, x2: WIDTH - RIGHT, y1: y(budget_pct), y2: y(budget_pct) }));
  if (cap_pct !== null) picture.append(part("line", { class: "cap", x1: x(cap_pct), x2: x(cap_pct), y1: TOP, y2: HEIGHT - BOTTOM }));
  for (const one of measured) {
    const r = Math.max(RADIUS_MIN, RADIUS_MAX * Math.sqrt(one.minutes / most));
    picture.append(part("circle", { class: "dot", cx: x((one.from_pct + one.to_pct) / 2), cy: y(one.slowdown_pct), r: r.toFixed(1) }));
  }
  return picture;
}
