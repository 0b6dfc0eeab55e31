// All nodes: what is wrong first, then how much is used and offered, and a heat map of the nodes.

import { number } from "../arithmetic.js";
import { card, el, fill, named, plain, setText, table } from "../dom.js";
import { drawRamp, heatmap, ramp } from "../heatmap.js";
import { go, here, link } from "../place.js";
import { amount, moment, span, t } from "../words.js";

const PROBLEMS_SHOWN = 6, PROBLEMS_MORE = 200, ROWS_SHOWN = 200;
const WORST = ["problem", "warning", "note", "ok"];

/** By what cells are coloured: a share of 0 to 1, and the figure in words. */
const FIGURES = {
  used: { share: (node) => part(node.used_cpu_milli, node.capacity_cpu_milli), text: (node) => of(node, "used_cpu_milli"), most: "100%" },
  sold: { share: (node) => part(node.sold_cpu_milli, node.capacity_cpu_milli), text: (node) => of(node, "sold_cpu_milli"), most: "100%" },
  gained: { share: (node) => part(node.gained_cpu_milli, node.capacity_cpu_milli), text: (node) => of(node, "gained_cpu_milli"), most: "100%" },
  pressure: { share: (node) => part(node.ls_stall_permille, 200), text: (node) => node.ls_stall_permille === null ? "–" : `${node.ls_stall_permille}‰`, most: "≥ 200‰" },
};
const part = (value, whole) => (value === null || !whole ? null : value / whole);
const of = (node, name) => node[name] === null ? "–"
  : `${amount(node[name], "milli")}${node.capacity_cpu_milli ? ` (${Math.round((100 * node[name]) / node.capacity_cpu_milli)}%)` : ""}`;

export const load = (ask, place) => ask("cluster", { at: place.at_ms });

/** Rows of the columns. */
function rowsOf(columns) {
  const names = Object.keys(columns);
  return columns.node.map((_, at) => Object.fromEntries(names.map((name) => [name, columns[name][at]])));
}

export function open() {
  let nodes = [], by = FIGURES[here().more.get("by")] ? here().more.get("by") : "used", filter = "";
  const sub = el("span.sub"), tip = el("p.tip", { "aria-live": "polite" });
  const problems = el("div"), sums = el("div"), stands = el("div"), rows = el("div"), gaps = el("div"), gradient = ramp(), most = el("span");
  const choose = (name) => { by = name; go({ query: { by: name } }, true); paint(); };
  const buttons = Object.keys(FIGURES).map((name) => el("button", { type: "button", onclick: () => choose(name) }, t(`by.${name}`)));
  const map = heatmap(t("heat.label"), seen, (at) => go({ page: "node", name: nodes[at].node }));
  const details = el("details", { ontoggle: list }, el("summary", {}, t("as.table")),
    el("form", { onsubmit: (event) => event.preventDefault() }, el("label.small", { htmlFor: "filter" }, t("filter")),
      el("input", { id: "filter", type: "text", spellcheck: false, oninput: (event) => { filter = event.target.value.toLowerCase(); list(); } })), rows);
  const root = el("div", {}, el("div.head", {}, el("h1", {}, t("page.cluster")), sub), gaps, sums, stands,
    card(t("problems"), null, problems),
    card(t("nodes"), el("div.segments.right", { role: "group", "aria-label": t("colour.by") }, ...buttons),
      el("div.legend", {}, el("span", {}, "0"), gradient, most, el("span.severity.problem", {}, t("severity.problem")), el("span.severity.warning", {}, t("severity.warning"))),
      el("div.heat", {}, map.canvas), tip, details));
  root.style.display = "contents";

  function seen(at) {
    const node = nodes[at];
    if (!node) return tip.replaceChildren(el("span.soft", {}, t("heat.hint")));
    tip.replaceChildren(el("strong", {}, named(node.node)), " · ", t(`by.${by}`), " ", FIGURES[by].text(node), " · ",
      el(`span.severity.${node.severity}`, {}, t(`severity.${node.severity}`)), node.why ? ` ${plain(node.why)}` : "");
  }

  function paint() {
    buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(Object.keys(FIGURES)[at] === by)));
    setText(most, FIGURES[by].most);
    drawRamp(gradient);
    map.show(nodes.map((node) => ({ name: node.node, share: FIGURES[by].share(node), severity: node.severity })));
    if (!tip.hasChildNodes()) seen(-1);
  }

  function list() {
    if (!details.open) return;
    const found = nodes.filter((node) => node.node.toLowerCase().includes(filter))
      .sort((a, b) => WORST.indexOf(a.severity) - WORST.indexOf(b.severity) || (a.node < b.node ? -1 : 1));
    const cell = (node, figure, unit = "milli") => number(node[figure], unit, { node: node.node, figure });
    fill(rows, table(t("nodes"), [t("node"), t("state"), t("of.used_cpu_milli"), t("of.sold_cpu_milli"), t("of.limit_cpu_milli"), t("of.age_ms"), t("why")],
      found.slice(0, ROWS_SHOWN).map((node) => [el("a", { href: link({ page: "node", name: node.node }) }, named(node.node)),
        el(`span.severity.${node.severity}`, {}, t(`severity.${node.severity}`)), cell(node, "used_cpu_milli"), cell(node, "sold_cpu_milli"),
        cell(node, "limit_cpu_milli"), span(node.age_ms), plain(node.why)]), [2, 3, 4, 5]),
      el("p.small.soft", {}, t("shown.of", { shown: Math.min(found.length, ROWS_SHOWN), all: found.length })));
  }

  return {
    root,
    show(answer) {
      nodes = rowsOf(answer.columns);
      setText(sub, nodes.length ? t("cluster.sub", { count: nodes.length }) : t("nothing.recorded"));
      fill(sums, figures(answer.sums));
      fill(stands, standing(answer.standing));
      fill(problems, ...trouble(answer.problems));
      fill(gaps, missing(answer));
      paint();
      list();
    },
  };
}

function figures(sums) {
  const share = (name, whole = "capacity_cpu_milli") => (sums[whole] && sums[name] !== null ? t("share.of", { share: Math.round((100 * sums[name]) / sums[whole]) }) : "");
  const one = (figure, unit, under) => el("div", {}, el("dt", {}, t(`of.${figure}`)), el("dd", {}, number(sums[figure], unit, { figure })), el("dd.small", {}, under));
  return el("dl.figures", {}, one("used_cpu_milli", "milli", share("used_cpu_milli")), one("ls_cpu_milli", "milli", share("ls_cpu_milli")),
    one("be_cpu_milli", "milli", share("be_cpu_milli")), one("sold_cpu_milli", "milli", share("sold_cpu_milli")),
    one("gained_cpu_milli", "milli", share("gained_cpu_milli")), one("sold_mem_bytes", "bytes", share("sold_mem_bytes", "capacity_mem_bytes")));
}

/** What is no sum over nodes: evictions by rule, nodes under their guard, lag, dead letters. */
function standing(stands) {
  const one = (figure, under = "") => el("div", {}, el("dt", {}, t(`of.${figure}`)), el("dd", {}, number(stands[figure], "count", { figure })), el("dd.small", {}, under));
  const rules = stands.by_rule.map(([rule, count]) => `${plain(rule)} ${amount(count)}`).join(", ");
  return el("dl.figures", {}, one("evicted_hour", rules), one("guarded_nodes"), one("lag_records"), one("letters_hour"));
}

let unfolded = false;

function trouble(found) {
  if (!found.length) return [el("p.severity.ok", {}, t("no.problems"))];
  const line = (one) => el("li", {}, el(`span.severity.${one.severity}`, {}, t(`severity.${one.severity}`)),
    one.node ? el("a", { href: link({ page: "node", name: one.node }), "data-key": `problem/${one.node}/${one.name}` }, named(one.node)) : el("span", {}, t("cluster")),
    el("span", {}, plain(one.text), one.place ? el("span.place", {}, ` ${plain(one.place[0])} ${one.place[1]}:${one.place[2]}`) : null));
  return [el("ul.list", {}, ...found.slice(0, PROBLEMS_SHOWN).map(line)),
    found.length > PROBLEMS_SHOWN ? el("details", { open: unfolded, ontoggle: (event) => { unfolded = event.target.open; } },
      el("summary", {}, t("more", { count: found.length - PROBLEMS_SHOWN })),
      el("ul.list", {}, ...found.slice(PROBLEMS_SHOWN, PROBLEMS_MORE).map(line))) : null];
}

function missing({ gaps, at_ms }) {
  const near = gaps.filter((gap) => gap.from_ms <= at_ms && at_ms <= gap.to_ms);
  return near.length ? el("p.card", { role: "note" }, ...near.map((gap) => t("gap", { from: moment(gap.from_ms), to: moment(gap.to_ms), what: plain(gap.what), reason: plain(gap.reason) }))) : null;
}
