// Services as they stood at a moment: who is slowed down most by best-effort work, and what was measured of one.

import { number } from "../arithmetic.js";
import { card, el, fill, named, plain, table } from "../dom.js";
import { fit } from "../fit.js";
import { go, link } from "../place.js";
import { amount, span, t } from "../words.js";
import { finding } from "./node.js";

const PARTS = [["dot", "service.measured"], ["slope", "service.slope"], ["band", "service.band"], ["budget", "service.budget"], ["cap", "service.cap"]];

export const load = (ask, place) => ask("services", { service: place.name, filter: place.name ? null : place.more.get("filter"), at: place.at_ms });

export function open() {
  const title = el("h1"), sub = el("span.sub"), services = el("div"), one = el("div");
  const input = el("input", { id: "service-filter", type: "text", spellcheck: false, oninput: () => go({ query: { filter: input.value || null } }, true) });
  const form = el("form.right", { onsubmit: (event) => event.preventDefault() }, el("label.small", { htmlFor: "service-filter" }, t("filter")), input);
  const list = card(t("services"), form, services);
  const root = el("div", {}, el("div.head", {}, title, sub), list, one);
  for (const each of [root, one]) each.style.display = "contents";

  return {
    root,
    show(answer, place) {
      list.hidden = !answer.services;
      if (document.activeElement !== input) input.value = place.more.get("filter") ?? "";
      fill(title, place.name ? named(place.name) : t("page.services"));
      fill(sub, el("span", {}, t(`mode.${answer.mode}`, { budget: amount(answer.budget_pct) }), ...(place.name ? [" · ", el("a", { href: link({ page: "services", name: "" }) }, t("services.all"))] : [])));
      if (answer.services) fill(services, ...(answer.services.length ? listed(answer) : [el("p.empty", {}, t(place.more.get("filter") ? "none.found" : "no.services"))]));
      fill(one, ...(place.name ? detail(answer) : []));
    },
  };
}

const percent = (value) => (value === null ? "–" : `${amount(Math.round(value))}%`);
const ms = (value) => (value === null ? "–" : `${value.toFixed(1)} ms`);
const ends = (slowdown) => `${percent(slowdown.pct)} [${percent(slowdown.low_pct)} … ${percent(slowdown.high_pct)}]`;
const slope = (row, figure) => (row[figure] / 1000).toFixed(2);
const figure = (service, name, text) => number(text, "text", { service, figure: name, mark: MARKS[name] });
/** Words of an explanation's lines about a figure. */
const MARKS = { half: "half of a node", cap_pct: "cap:", alone_pct: "because it waits", node_hours: "measured:", signal: "signal:", alone_ms: "99th percentile without", target_ms: "target:", pressure: "it slows down by" };

function listed({ services, services_count }) {
  const rows = services.map((row) => [el("a", { href: link({ page: "services", name: row.service }), "data-key": row.service }, named(row.service)), t(`service.${row.signal}`), t(`service.${row.status}`),
    figure(row.service, "slope", slope(row, "slope_permille") + (row.shape === "bent" ? ` ${t("service.bent")}` : "")), `${slope(row, "low_permille")} … ${slope(row, "high_permille")}`,
    figure(row.service, "half", percent(row.half_pct)), figure(row.service, "cap_pct", percent(row.cap_pct)), amount(row.node_hours), amount(row.nodes), span(row.age_ms), el("span.place", {}, plain(row.place))]);
  return [table(t("services"), [t("service"), t("of.signal"), t("state"), t("of.slope"), t("service.interval"), t("of.half"), t("of.cap_pct"), t("of.node_hours"), t("nodes"), t("age"), t("place")], rows, [3, 4, 5, 6, 7, 8, 9]),
    services_count > services.length ? el("p.small.soft", {}, t("more", { count: services_count - services.length })) : null];
}

function detail(answer) {
  const { service, latency } = answer, counts = latency && answer.signal === "latency";
  const half = ["half", ends(counts ? latency.half : answer.half)], cap = ["cap_pct", percent(answer.cap_pct)], alone = ["alone_pct", percent(answer.alone_pct)], hours = ["node_hours", amount(answer.node_hours)];
  const rows_of_figures = latency ? [[["signal", t(`service.${answer.signal}`)], ["alone_ms", ms(latency.alone_ms)], ["target_ms", ms(latency.target_ms)], cap, hours], [half, ...(counts ? [["pressure", ends(answer.half)]] : []), alone]] : [[half, cap, alone, hours]];
  const shown = ([name, text]) => el("div", {}, el("dt", {}, t(`of.${name}`)), el("dd", {}, figure(service, name, text)), name === "node_hours" ? el("dd.small", {}, t("on.count", { count: amount(answer.nodes) })) : null, name === "target_ms" && latency.target_at_pct !== null ? el("dd.small", {}, t("service.target_at", { share: percent(latency.target_at_pct) })) : null);
  const measured = answer.tenths.filter((one) => one.minutes > 0), label = t(counts ? "service.picture_of_pressure" : "service.picture");
  const rows = measured.map((one) => [`${one.from_pct} … ${one.to_pct}%`, amount(Math.round(one.minutes)), percent(one.by_slope_pct), percent(one.slowdown_pct)]);
  return [
    ...rows_of_figures.map((cells) => el("dl.figures", {}, ...cells.map(shown))),
    card(t("findings"), null, el("ul.list", {}, ...answer.findings.map(finding))),
    card(label, null, measured.length || answer.line.length ? fit(label, counts ? { ...answer, cap_pct: null } : answer) : el("p.empty", {}, t("no.minutes")),
      el("div.legend", {}, ...PARTS.filter(([kind]) => !counts || kind !== "cap").map(([kind, word]) => el("span.key", {}, el(`i.fit-${kind}`), t(word)))),
      el("details", {}, el("summary", {}, t("as.table")), table(label, [t("service.x"), t("service.minutes"), t("service.slope"), t("service.measured")], rows, [1, 2, 3]))),
    card(t("service.text"), null, el("pre", { tabIndex: 0, role: "region", "aria-label": t("service.text") }, answer.text.split("\n").map(plain).join("\n"))),
  ];
}
