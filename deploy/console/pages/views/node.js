// One node over time: who uses it, what is offered of it and why, what suppression did, and who decided.

import { number } from "../arithmetic.js";
import { chart, legend } from "../chart.js";
import { card, el, fill, named, plain, setText, table } from "../dom.js";
import { go, here, link } from "../place.js";
import { amount, moment, span, t } from "../words.js";

const SPANS = [[300000, "5 min"], [900000, "15 min"], [3600000, "1 h"], [21600000, "6 h"], [86400000, "24 h"], [604800000, "7 d"]];
const CPU = [
  { name: "ls_cpu_milli", colour: "ls", kind: "area" }, { name: "be_cpu_milli", colour: "be", kind: "area" },
  { name: "system_cpu_milli", colour: "system", kind: "area" }, { name: "ceiling_cpu_milli", colour: "ceiling", kind: "dash" },
  { name: "limit_cpu_milli", colour: "limit", kind: "line" }, { name: "sold_cpu_milli", colour: "sold", kind: "line" },
  { name: "requested_cpu_milli", colour: "requested", kind: "dash" },
];
const STRIP = [{ name: "be_throttled_permille", colour: "be", kind: "area" }, { name: "ls_stall_permille", colour: "ls", kind: "line" }];
const SUPPRESS = [{ name: "cuts", colour: "problem", kind: "line" }, { name: "raises", colour: "ok", kind: "dash" }, { name: "bursts", colour: "limit", kind: "dash" }];
const PSI = [{ name: "cpu_some", colour: "be", kind: "line" }, { name: "mem_some", colour: "sold", kind: "line" }, { name: "io_some", colour: "system", kind: "line" }];
const COUNTED = new Set(SUPPRESS.map((part) => part.name));
/** Under the chart of CPU: title, unit, height and lines of each. */
const STRIPS = [["chart.strip", "permille", 110, STRIP], ["chart.suppress", "count", 80, SUPPRESS], ["chart.psi", "centi", 90, PSI]];
const LINES = CPU.concat(...STRIPS.map(([, , , parts]) => parts));
const SHOWN = [["used_cpu_milli", "milli"], ["ls_cpu_milli", "milli"], ["be_cpu_milli", "milli"], ["sold_cpu_milli", "milli"],
  ["requested_cpu_milli", "milli"], ["limit_cpu_milli", "milli"], ["used_mem_bytes", "bytes"], ["sold_mem_bytes", "bytes"]];
const spanOf = (place) => Number(place.more.get("span")) || 900000;

export const load = (ask, place) => ask("node", { node: place.name, at: place.at_ms, span: place.name ? spanOf(place) : null });

export function open() {
  let series = { t_ms: [], by: {} };
  const title = el("h1"), sub = el("span.sub"), figures = el("div"), findings = el("div"), cpus = el("div"), waterfall = el("div"), decided = el("div"), chain = el("div"), numbers = el("div"), kept = el("span.soft.small.right"), choice = el("div");
  const tip = el("p.tip.small", { "aria-live": "polite" });
  const at = (index) => {
    if (index < 0) return tip.replaceChildren(el("span.soft", {}, t("chart.hint")));
    const value = (part) => `${t(`of.${part.name}`)} ${written(part.name, series.by[part.name]?.[index])}`;
    tip.replaceChildren(el("strong", {}, moment(series.t_ms[index])), ` · ${LINES.map(value).join(" · ")}`);
  };
  const chosen = (at_ms) => go({ at_ms });
  const cpu = chart(t("chart.cpu"), "milli", 300, CPU, at, chosen);
  const strips = STRIPS.map(([title, unit, height, parts]) => ({ parts, ...chart(t(title), unit, height, parts, at, chosen) }));
  const spans = SPANS.map(([span_ms, text]) => el("button", { type: "button", onclick: () => go({ query: { span: String(span_ms) } }) }, text));
  const details = el("details", { ontoggle: () => tabled(here().name) }, el("summary", {}, t("as.table")), numbers);
  const one = el("div", {}, figures, findings,
    card(t("chart.cpu"), el("div.segments.right", { role: "group", "aria-label": t("span") }, ...spans), legend(CPU, (name) => t(`of.${name}`)), cpu.canvas,
      ...strips.flatMap((one) => [legend(one.parts, (name) => t(`of.${name}`)), one.canvas]), tip, details), cpus,
    el("div.pair", {}, card(t("why.sold"), kept, waterfall), card(t("who.decided"), null, decided)), card(t("chain"), null, chain));
  one.style.display = "contents";
  const root = el("div", {}, el("div.head", {}, title, sub), choice, one);
  root.style.display = "contents";
  at(-1);

  function tabled(node) {
    if (!details.open) return;
    const every = Math.max(1, Math.ceil(series.t_ms.length / 60));
    const end = (index) => series.t_ms[index] + series.step_ms;
    /** A level is of its point's last second, a count of all of the point. */
    const cell = (name, index) => number(series.by[name]?.[index] ?? null, unitOf(name), { node, figure: name, mark: MARKS[name],
      ...(COUNTED.has(name) ? { at_ms: end(index), span: series.step_ms } : { at_ms: end(index) - 1000 }) });
    fill(numbers, table(t("chart.cpu"), [t("moment"), ...LINES.map((part) => t(`of.${part.name}`))],
      series.t_ms.map((_, index) => index).filter((index) => index % every === 0).reverse()
        .map((index) => [moment(series.t_ms[index]), ...LINES.map((part) => cell(part.name, index))]), LINES.map((_, index) => index + 1)));
  }

  return {
    root,
    show(answer, place) {
      one.hidden = !place.name;
      one.style.display = place.name ? "contents" : "none";
      if (!place.name) { title.replaceChildren(t("page.node")); setText(sub, ""); return fill(choice, nodesOf(answer.nodes)); }
      fill(choice);
      if (title.dataset.of !== place.name) { title.replaceChildren(named(place.name)); title.dataset.of = place.name; }
      const row = answer.row;
      series = answer.series;
      spans.forEach((button, index) => button.setAttribute("aria-pressed", String(SPANS[index][0] === spanOf(place))));
      fill(sub, row ? el(`span.severity.${row.severity}`, {}, t(`state.${row.state}`)) : t("nothing.recorded"), row?.why ? ` ${plain(row.why)}` : "");
      fill(figures, row ? el("dl.figures", {}, ...SHOWN.map(([name, unit]) => el("div", {}, el("dt", {}, t(`of.${name}`)), el("dd", {},
        name === "limit_cpu_milli" && answer.unlimited ? t("unlimited") : number(row[name], unit, { node: place.name, figure: name, mark: MARKS[name] }))))) : null);
      fill(findings, answer.findings.length ? card(t("findings"), null, el("ul.list", {}, ...answer.findings.map(finding))) : null);
      fill(cpus, answer.cpus.length ? card(t("cpus"), null, ...cpuStrips(answer.cpus)) : null);
      const marks = answer.series.t_ms.flatMap((at_ms, index) => answer.series.by.evictions?.[index] ? [{ at_ms, severity: "problem" }] : answer.series.by.bursts?.[index] ? [{ at_ms, severity: "note" }] : []);
      cpu.show(series.t_ms, series.by, marks, place.at_ms);
      for (const strip of strips) strip.show(series.t_ms, series.by, [], place.at_ms);
      tabled(place.name);
      setText(kept, answer.kept_ms && answer.at_ms - answer.kept_ms > 2000 ? t("kept", { moment: moment(answer.kept_ms) }) : "");
      fill(waterfall, ...answer.figures.map((figure) => (figure.of.startsWith("mid") ? folded(figure, place.name) : falling(figure, place.name))), answer.figures.length ? null : el("p.empty", {}, t("no.arithmetic")));
      fill(decided, deciding(row, series, place.name, spanOf(place)));
      fill(chain, steps(answer.steps, place.name));
    },
  };
}

const MARKS = { sold_cpu_milli: "batch-cpu|batch_cpu", sold_mem_bytes: "batch-memory|batch_mem", limit_cpu_milli: "best-effort limit|limit_cpu_milli", used_cpu_milli: "node uses|used_cpu_milli" };
const UNITS = [["_milli", "milli"], ["_bytes", "bytes"], ["_permille", "permille"], ["_some", "centi"]];
const unitOf = (name) => UNITS.find(([end]) => name.endsWith(end))?.[1] ?? "count";
const written = (name, value) => amount(value, unitOf(name));

const nodesOf = (nodes) => card(t("choose.node"), null, nodes.length
  ? el("ul.list", {}, ...nodes.map((name) => el("li", {}, el("a", { href: link({ page: "node", name }) }, named(name))))) : el("p.empty", {}, t("nothing.recorded")));

export const finding = (one) => el("li", {}, el(`span.severity.${one.severity}`, {}, t(`severity.${one.severity}`)), el("code", {}, plain(one.name)),
  el("span", {}, plain(one.text), one.advice ? el("span.soft", {}, ` → ${plain(one.advice)}`) : null));

/** A cell for each CPU, a line for each NUMA zone, and below them the same in words. */
function cpuStrips(groups) {
  const numbers = (text) => text.split(",").flatMap((part) => {
    const [first, last = first] = part.split("-").map(Number);
    return Array.from({ length: last - first + 1 }, (_, index) => first + index);
  });
  const key = (one) => `i.cpu.${one.owner.toLowerCase()}${one.best_effort ? ".also" : ""}`;
  const said = (one) => [`${t(`cpu.${one.owner}`)} ${one.cpus}`, ...one.pods.map(plain), one.best_effort ? t("cpu.also") : t("cpu.never")].join(" · ");
  return [...new Set(groups.map((one) => one.zone))].map((zone) => {
    const here = groups.filter((one) => one.zone === zone), title = t("cpu.zone", { zone });
    const cells = here.flatMap((one) => numbers(one.cpus).map((cpu) => [cpu, one])).sort(([a], [b]) => a - b);
    return el("div.part", {}, el("p.soft.small", {}, title),
      el("div.cpus", { role: "img", "aria-label": `${title}: ${here.map(said).join("; ")}` }, ...cells.map(([cpu, one]) => el(key(one), { title: `CPU ${cpu} · ${said(one)}` }))),
      el("div.legend", { "aria-hidden": "true" }, ...here.map((one) => el("span.key", {}, el(key(one)), said(one)))));
  });
}

/** What few offer stays closed, until it is opened: and then it stays open. */
const unfolded = new Set();
const folded = (figure, node) => el("details.part", { open: unfolded.has(figure.of), ontoggle: (event) => { event.target.open ? unfolded.add(figure.of) : unfolded.delete(figure.of); } },
  el("summary", {}, `${t(`of.${figure.of}`)} ${written(figure.of, figure.published)}`), falling(figure, node));

/** A figure as bars that begin where the one before ended. */
function falling(figure, node) {
  const unit = unitOf(figure.of), because = figure.because, mark = figure.of;
  const title = el("p", {}, el("strong", {}, t(`of.${figure.of}`)), " ", number(figure.published, unit, { node, figure: figure.of, mark }),
    because ? el("span.soft.small", {}, ` ${t("bound")}: ${plain(because.bound)}${figure.floored ? `; ${t("floored")}` : ""}`) : null);
  if (!because) return title;
  const signs = Object.fromEntries((because.adds ?? []).map((part) => [part.slice(1), part[0]])), terms = Object.entries(because.terms);
  const scale = Math.max(1, ...terms.filter(([name]) => signs[name] === "+").map(([, value]) => value));
  let level = 0;
  const bars = terms.flatMap(([name, value], index) => {
    const sign = signs[name], total = index === terms.length - 1, before = sign ? level : 0;
    if (sign) level += sign === "+" ? value : -value;
    const bar = el(`i.${total ? "sum" : sign === "-" ? "minus" : "plus"}`), after = sign ? level : value;
    const low = Math.min(1, Math.max(0, Math.min(before, after) / scale)), high = Math.min(1, Math.max(0, Math.max(before, after) / scale));
    Object.assign(bar.style, { left: `${100 * low}%`, width: `${100 * (high - low)}%` });
    const kind = total ? "span.total" : "span";
    return [el(kind, {}, `${sign === "-" ? "−" : sign ?? (total ? "=" : "·")} ${plain(name)}`), el("span.track", { "aria-hidden": "true" }, sign || total ? bar : null),
      el(kind, {}, number(value, unitOf(name), { node, figure: name, mark: name }))];
  });
  return el("div.part", {}, title, el("div.bars", {}, ...bars));
}

function deciding(row, series, node, span_ms) {
  if (!row) return el("p.empty", {}, t("nothing.recorded"));
  const sum = (name) => (series.by[name] ?? []).reduce((all, value) => all + (value ?? 0), 0);
  const over = (figure, value, unit = "count") => number(value, unit, { node, figure, span: span_ms });
  const times = (series.by.decided_ms ?? []).filter((value) => value !== null).sort((a, b) => a - b);
  const facts = [["decided.last", row.decided_by ? t(`by.${row.decided_by}`) : "–"], ["decided.took", number(row.decided_ms, "ms", { node, figure: "decided_ms", mark: "outcome" })],
    ["decided.p95", over("decided_p95_ms", times.length ? times[Math.floor((times.length - 1) * .95)] : null, "ms")], ...["cuts", "raises", "bursts", "evictions", "guarded"].map((name) => [`count.${name}`, over(name, sum(name))]),
    ["policy", plain(row.policy_version || "–")]];
  return table(t("who.decided"), [t("what"), t("value")], facts.map(([name, value]) => [t(name), value]), [1]);
}

const steps = (found, node) => found.length ? table(t("chain"), [t("step"), t("age"), t("what"), t("place"), t("trace")],
  found.map((step) => [plain(step.name), span(step.age_ms), plain([step.answer, step.result, step.rule, step.bound, step.reason, step.origin].filter(Boolean).join(" · ") || "–"),
    el("a.place", { href: link({ page: "records", name: "", query: { of: step.place, node } }) }, plain(step.place)),
    step.traces ? el("a.place", { href: link({ page: "records", name: "", query: { of: step.traces, node } }) }, `${step.traces.slice(0, 4)}…${step.traces.slice(-8)}`) : "–"])) : el("p.empty", {}, t("no.arithmetic"));
