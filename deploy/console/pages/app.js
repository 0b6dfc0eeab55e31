// The shell: which page is shown, for which moment, and when it asks anew.

import * as theme from "./theme.js";
import { box, shown as moment } from "./arithmetic.js";
import { el, plain } from "./dom.js";
import { ask, ticks } from "./feed.js";
import { go, here, link } from "./place.js";
import * as timebar from "./timebar.js";
import { language, preferred, speak, t } from "./words.js";
import * as cluster from "./views/cluster.js";
import * as jobs from "./views/jobs.js";
import * as node from "./views/node.js";
import * as pod from "./views/pod.js";
import * as policy from "./views/policy.js";
import * as records from "./views/records.js";
import * as services from "./views/services.js";

const VIEWS = { cluster, node, pod, records, policy, jobs, services };
const main = document.getElementById("main"), nav = document.getElementById("nav");
const at = (id) => document.getElementById(id);
let opened = {}, shown = null, asking = false, again = false;

/** Ask for what the address names, one question at a time; whatever changed meanwhile is asked for afterwards. */
async function renew() {
  if (asking) { again = true; return; }
  asking = true;
  do {
    again = false;
    const place = here(), view = VIEWS[place.page] ?? cluster;
    try {
      const answer = await view.load(ask, place);
      if (same(place, here())) show(place, view, answer);
    } catch (error) {
      if (same(place, here())) fail(place, error);
    }
  } while (again);
  asking = false;
}

const same = (one, other) => one.page === other.page && one.name === other.name;

function show(place, view, answer) {
  const name = place.page in VIEWS ? place.page : "cluster";
  opened[name] ??= view.open();
  if (shown !== name) main.replaceChildren(opened[name].root);
  shown = name;
  moment.at_ms = answer.at_ms;
  opened[name].show(answer, place);
  main.dataset.shows = `${name}/${place.name}`;
  main.dataset.at = String(answer.at_ms);
}

function fail(place, error) {
  shown = null;
  main.dataset.shows = "";
  main.replaceChildren(el("div.card", {}, el("h1", {}, t(`page.${place.page}`)), el("p", { role: "alert" }, plain(error.message))));
}

function arrived() {
  const place = here();
  for (const one of nav.children) one.dataset.page === place.page ? one.setAttribute("aria-current", "page") : one.removeAttribute("aria-current");
  for (const one of nav.children) one.href = link({ page: one.dataset.page, name: kept(one.dataset.page, place) });
  document.title = [plain(place.name), t(`page.${place.page}`), "Slacktide"].filter(Boolean).join(" · ");
  timebar.show();
  renew();
}

/** A tab goes back to the object that it showed. */
const last = {};
function kept(page, place) {
  if (page === place.page) last[page] = place.name;
  return last[page] ?? "";
}

function words() {
  for (const one of document.querySelectorAll("[data-word]")) one.textContent = t(one.dataset.word);
  nav.setAttribute("aria-label", t("pages"));
  nav.replaceChildren(...Object.keys(VIEWS).map((page) => el("a", { "data-page": page }, t(`page.${page}`))));
  at("help").title = t("help");
  at("help").setAttribute("aria-label", t("help"));
  at("language").value = language;
  dressed();
  timebar.build();
  opened = {};
  shown = null;
  arrived();
}

function dressed() {
  at("theme").textContent = theme.theme() === "dark" ? "☀" : "☾";
  at("theme").title = t(theme.theme() === "dark" ? "to.light" : "to.dark");
  at("theme").setAttribute("aria-label", at("theme").title);
}

const KEYS = [["?", "keys.help"], ["1 – 7", "keys.pages"], ["space", "keys.play"], ["L", "keys.live"], ["D", "keys.theme"],
  ["← →", "keys.slider"], ["Shift ← →", "keys.far"], ["← ↑ ↓ →", "keys.heat"], ["Enter", "keys.enter"], ["Esc", "keys.close"]];
const help = () => box(t("help"), el("dl.keys", {}, ...KEYS.flatMap(([key, text]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, t(text))])));

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || at("dialog").open) return;
  if (event.target.matches("input[type=text], select, textarea")) return;
  const page = Object.keys(VIEWS)[Number(event.key) - 1];
  const act = { "?": help, l: () => go({ at_ms: null }), d: theme.turn }[event.key.toLowerCase()];
  if (page) location.hash = nav.querySelector(`[data-page=${page}]`).hash;
  else if (act) act();
  else if (event.key === " " && !event.target.matches("button, a, summary, .scroll")) timebar.toggle();
  else return;
  event.preventDefault();
});
at("help").addEventListener("click", help);
at("theme").addEventListener("click", theme.turn);
addEventListener("theme", dressed);
at("language").addEventListener("change", async (event) => { await speak(event.target.value); words(); });
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
addEventListener("hashchange", arrived);

await speak(preferred());
words();
ticks((tick) => {
  at("connection").textContent = tick === null ? t("away") : tick.note && here().at_ms === null ? t(tick.note) : "";
  at("connection").title = plain(tick?.trouble ?? "");
  if (tick === null) return;
  timebar.moved(tick.first_ms, tick.now_ms);
  if (here().at_ms === null) renew();
});
