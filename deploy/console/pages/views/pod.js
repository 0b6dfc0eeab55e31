// One pod: what it uses, its life (placed, throttled, frozen, evicted, each with its reason and record), its controller's others.

import { card, el, fill, named, plain, table } from "../dom.js";
import { number } from "../arithmetic.js";
import { go, link } from "../place.js";
import { moment, t } from "../words.js";
import { finding } from "./node.js";

const SEVERE = { evicted: "problem", killed: "problem", stuck: "problem", refused: "warning", frozen: "warning", throttled: "warning", descheduled: "warning", missed: "warning" };

const UNITS = { milli: "milli", bytes: "bytes", permille: "permille" };

export const load = (ask, place) => ask("pod", { pod: place.name, at: place.at_ms });

export function open() {
  const title = el("h1"), body = el("div"), input = el("input", { id: "pod-name", type: "text", placeholder: "jobs/etl-x2lqp", spellcheck: false });
  body.style.display = "contents";
  const form = el("form", { onsubmit: (event) => { event.preventDefault(); go({ page: "pod", name: input.value.trim() }); } },
    el("label", { htmlFor: "pod-name" }, t("pod.name")), input, el("button", { type: "submit" }, t("show")));
  const root = el("div", {}, el("div.head", {}, title, el("div.right", {}, form)), body);
  root.style.display = "contents";
  return {
    root,
    show(answer, place) {
      fill(title, place.name ? named(place.name) : t("page.pod"));
      fill(body, ...(place.name ? life(answer, place.name) : [list(t("pods.known"), answer.pods)]));
    },
  };
}

const list = (title, pods) => card(title, null, pods.length
  ? el("ul.list", {}, ...pods.map((pod) => el("li", {}, el("a", { href: link({ page: "pod", name: pod }) }, named(pod))))) : el("p.empty", {}, t("no.pods")));

/** What it uses and may use, by the records of its node. */
function used({ node, figures, class: kind }, pod) {
  const one = (name) => el("div", {}, el("dt", {}, t(`of.pod.${name}`)), el("dd", {}, number(figures[name], UNITS[name.split("_").at(-1)], { pod, figure: name })));
  const where = node ? el("span", {}, `${t("on")} `, el("a", { href: link({ page: "node", name: node }) }, named(node)), kind ? ` · ${plain(kind)}` : "") : t("no.node");
  return card(t("use"), el("span.soft.right", {}, where), Object.values(figures).some((value) => value !== null) ? el("dl.figures", {}, ...Object.keys(figures).map(one)) : el("p.empty", {}, t("no.use")));
}

function life(answer, pod) {
  const { events, others, others_count, controller, findings } = answer;
  const entry = (one) => el("li", {}, el("div", {}, el(`span.severity.${SEVERE[one.kind] ?? "ok"}`, {}, t(`pod.${one.kind}`)), " ", el("time", { dateTime: new Date(one.at_ms).toISOString() }, moment(one.at_ms)),
    one.node ? el("span", {}, ` ${t("on")} `, el("a", { href: link({ page: "node", name: one.node, at_ms: one.at_ms }) }, named(one.node))) : null),
    el("div", {}, plain(one.text)), one.credit ? el("div", {}, plain(one.credit)) : null, el("a.place", { href: link({ page: "records", name: "", query: { of: one.place } }) }, plain(one.place)));
  const line = events.length ? el("ol.life", {}, ...events.map(entry)) : el("p.empty", {}, t("no.events"));
  const count = number(events.length, "count", { pod, figure: "events" });
  const all = el("details", {}, el("summary", {}, t("as.table")), table(t("life"), [t("moment"), t("what"), t("node"), t("why"), t("place")],
    events.map((one) => [moment(one.at_ms), t(`pod.${one.kind}`), plain(one.node), [plain(one.text), plain(one.credit)].filter(Boolean).join("; "), el("span.place", {}, plain(one.place))])));
  const rest = others_count > others.length ? el("p.small.soft", {}, t("more", { count: others_count - others.length })) : null;
  const made = controller ? [list(t("pod.others", { controller: plain(controller) }), others), rest] : [];
  return [used(answer, pod), findings.length ? card(t("findings"), null, el("ul.list", {}, ...findings.map(finding))) : null,
    card(t("life"), el("span.soft.right", {}, t("events"), ": ", count), line, events.length ? all : null), ...made];
}
