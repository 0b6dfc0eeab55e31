// The slider over all pages: live, or any moment of what is kept; it plays faster than life.

import { el } from "./dom.js";
import { go, here } from "./place.js";
import { moment, span, t } from "./words.js";

const SPEEDS = [1, 10, 60, 600], FRAME_MS = 250;
const bar = document.getElementById("time");
const state = { first_ms: null, now_ms: null, speed: 60, playing: null };
let parts = {};

export const now_ms = () => state.now_ms;

/** Build it in the language that is chosen. */
export function build() {
  parts = {
    live: el("button", { id: "live", type: "button", onclick: () => { stop(); go({ at_ms: null }); } }, t("live")),
    play: el("button.tool", { id: "play", type: "button", onclick: toggle }),
    speed: el("select", { id: "speed", "aria-label": t("speed"), onchange: (event) => { state.speed = Number(event.target.value); } },
      ...SPEEDS.map((speed) => el("option", { value: speed, selected: speed === state.speed }, `${speed}×`))),
    slider: el("input", { id: "slider", type: "range", min: 0, max: 1, step: 1000, "aria-label": t("moment"),
      oninput: (event) => { stop(); moveTo(Number(event.target.value)); }, onkeydown: keyed }),
    text: el("output", { id: "moment", htmlFor: "slider" }),
    first: el("span.soft.small", { title: t("first") }),
  };
  bar.replaceChildren(parts.live, parts.play, parts.speed, parts.first, parts.slider, parts.text);
  show();
}

/** Arrows go by what is kept there, 1 s, 10 s or 1 min; with Shift ten times as far. */
function keyed(event) {
  const way = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 60, PageDown: -60 }[event.key];
  if (way === undefined || state.now_ms === null) return;
  event.preventDefault();
  stop();
  const at_ms = here().at_ms ?? state.now_ms, age_ms = state.now_ms - at_ms;
  const step_ms = age_ms <= 86400000 ? 1000 : age_ms <= 3 * 86400000 ? 10000 : 60000;
  moveTo(at_ms + way * step_ms * (event.shiftKey ? 10 : 1));
}

function moveTo(at_ms) {
  const to = Math.max(state.first_ms ?? 0, at_ms);
  go({ at_ms: to >= state.now_ms - 500 ? null : to }, true);
}

export function toggle() {
  if (state.playing !== null) return stop();
  if (here().at_ms === null) moveTo(Math.max(state.first_ms, state.now_ms - 600000));
  let before = performance.now();
  state.playing = setInterval(() => {
    const elapsed = performance.now() - before;
    before += elapsed;
    const at_ms = here().at_ms;
    if (at_ms === null) return stop(); // it has caught up
    moveTo(at_ms + elapsed * state.speed);
  }, FRAME_MS);
  show();
}

function stop() {
  clearInterval(state.playing);
  state.playing = null;
  show();
}

/** The span that is kept has moved on. */
export function moved(first_ms, now) {
  state.first_ms = first_ms;
  state.now_ms = now;
  show();
}

export function show() {
  if (!parts.live) return;
  const at_ms = here().at_ms, playing = state.playing !== null;
  parts.live.setAttribute("aria-pressed", String(at_ms === null));
  parts.play.textContent = playing ? "⏸" : "▶";
  parts.play.title = t(playing ? "pause" : "play");
  parts.play.setAttribute("aria-label", t(playing ? "pause" : "play"));
  if (state.now_ms === null) return;
  const shown = at_ms ?? state.now_ms;
  Object.assign(parts.slider, { min: state.first_ms ?? state.now_ms - 1000, max: state.now_ms, value: shown });
  parts.slider.setAttribute("aria-valuetext", moment(shown));
  parts.text.textContent = moment(shown);
  parts.first.textContent = state.first_ms === null ? "" : `−${span(state.now_ms - state.first_ms)}`;
}
