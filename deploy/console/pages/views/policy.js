// What holds on which nodes, and what another policy, the shadow, would offer.

import { number } from "../arithmetic.js";
import { card, el, fill, named, plain, table } from "../dom.js";
import { link } from "../place.js";
import { amount, moment, t } from "../words.js";

export const load = (ask, place) => ask("policy", { at: place.at_ms });

export function open() {
  let all = false, answer = null;
  const sub = el("span.sub"), groups = el("div"), shadow = el("div"), refused = el("div");
  groups.style.display = "contents";
  const toggle = el("button.right", { type: "button", "aria-pressed": "false", onclick: () => { all = !all; toggle.setAttribute("aria-pressed", String(all)); paint(); } }, t("with.defaults"));
  const root = el("div", {}, el("div.head", {}, el("h1", {}, t("page.policy")), sub, toggle), refused, groups, card(t("shadow"), null, shadow));
  root.style.display = "contents";

  function paint() {
    if (!answer.version) { fill(sub, t("no.policy")); fill(groups); return fill(shadow, el("p.empty", {}, t("no.shadow"))); }
    fill(sub, `${t("version")} ${plain(answer.version)} · ${moment(answer.published_ms)} `, el("span.place", {}, plain(answer.place)));
    fill(refused, answer.refused ? el("p.card.severity.warning", {}, plain(answer.refused)) : null);
    const silent = answer.groups.filter((one) => !one.name && !one.fields.some((field) => all || field.set));
    fill(groups, ...answer.groups.map(group).filter(Boolean), silent.length ? el("p.soft", {}, `${t("defaults.only")}: ${silent.map((one) => plain(one.config)).join(", ")}`) : null);
    fill(shadow, ...(answer.shadow.length ? differing(answer) : [el("p.empty", {}, t("no.shadow"))]));
  }

  function group(one) {
    const fields = one.fields.filter((field) => all || field.set);
    const title = one.name ? `${plain(one.config)} · ${plain(one.name)}` : plain(one.config);
    const whom = el("span.soft.small", {}, one.name ? t("on.nodes", { nodes: plain(one.nodes) }) : t("everywhere"));
    if (!fields.length) return null;
    return card(title, whom, table(title, [t("field"), t("value"), t("set.by")], fields.map((field) => [plain(field.field).split(".").slice(1).join("."), plain(field.value), t(field.set ? "set" : "default")])));
  }

  return { root, show(given) { answer = given; paint(); } };
}

function differing({ shadow, nodes_count }) {
  const figures = [["batch_cpu_milli", "milli"], ["batch_mem_bytes", "bytes"]];
  const change = (one, [name, unit]) => {
    const live = one.live[name] ?? null, other = one.shadow[name] ?? null;
    const by = live === null || other === null ? "" : ` (${other - live >= 0 ? "+" : "−"}${amount(Math.abs(other - live), unit)})`;
    return [number(live, unit, { node: one.node, figure: name }), el("span", {}, number(other, unit, { node: one.node, figure: name, shadow: 1 }), by)];
  };
  return [table(t("shadow"), [t("node"), ...figures.flatMap(([name]) => [t(`of.${name}`), `${t(`of.${name}`)} · ${t("by.shadow")}`]), t("version")],
    shadow.map((one) => [el("a", { href: link({ page: "node", name: one.node }) }, named(one.node)), ...figures.flatMap((figure) => change(one, figure)), plain(one.version)]), [1, 2, 3, 4]),
  el("p.small.soft", {}, t("shown.of", { shown: shadow.length, all: nodes_count }))];
}
