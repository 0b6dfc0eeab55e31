// Jobs and the queue as they stood at a moment: who is in trouble first, one Job's progress and ends, who holds quota and who waits.

import { number } from "../arithmetic.js";
import { chart, legend } from "../chart.js";
import { card, el, fill, named, plain, table } from "../dom.js";
import { go, link } from "../place.js";
import { amount, moment, t } from "../words.js";
import { finding } from "./node.js";

const PROGRESS = [{ name: "succeeded", colour: "ok", kind: "line" }, { name: "failed", colour: "problem", kind: "dash" }];
const POINTS = 120;
const FIGURES = ["active", "succeeded", "failed", "evictions", "lost_core_s"];
/** Words of an explanation's lines about a figure. */
const MARKS = { evictions: "evict", lost_core_s: "lost" };

export const load = (ask, place) => ask("jobs", { job: place.name, filter: place.name ? null : place.more.get("filter"), at: place.at_ms });

export function open() {
  const title = el("h1"), sub = el("span.sub"), jobs = el("div"), queues = el("div"), workloads = el("div"), one = el("div");
  const input = el("input", { id: "job-filter", type: "text", spellcheck: false, oninput: () => go({ query: { filter: input.value || null } }, true) });
  const form = el("form.right", { onsubmit: (event) => event.preventDefault() }, el("label.small", { htmlFor: "job-filter" }, t("filter")), input);
  const list = el("div", {}, card(t("jobs"), form, jobs), card(t("queues"), null, queues), card(t("workloads"), null, workloads));
  const tip = el("p.tip.small", { "aria-live": "polite" });
  let series = { t_ms: [], by: {} };
  const at = (index) => fill(tip, index < 0 ? null : el("span", {}, el("strong", {}, moment(series.t_ms[index])), ` · ${PROGRESS.map((part) => `${t(`of.${part.name}`)} ${amount(series.by[part.name][index])}`).join(" · ")}`));
  const line = chart(t("job.progress"), "count", 180, PROGRESS, at, () => {});
  const points = el("div"), progress = card(t("job.progress"), null, legend(PROGRESS, (name) => t(`of.${name}`)), line.canvas, tip, el("details", {}, el("summary", {}, t("as.table")), points));
  const ends = el("div"), detail = el("div", {}, one, progress, ends);
  const root = el("div", {}, el("div.head", {}, title, sub), list, detail);
  for (const each of [root, one, ends]) each.style.display = "contents";

  return {
    root,
    show(answer, place) {
      list.style.display = answer.jobs ? "contents" : "none";
      detail.style.display = answer.row ? "contents" : "none";
      if (document.activeElement !== input) input.value = place.more.get("filter") ?? "";
      fill(title, place.name ? named(place.name) : t("page.jobs"));
      fill(sub, answer.row ? el("span", {}, severity(answer.row), " ", state(answer.row), " · ", el("a", { href: link({ page: "jobs", name: "" }) }, t("jobs.all"))) : null);
      if (answer.jobs) {
        fill(jobs, ...(answer.jobs.length ? listed(answer) : [empty(place.more.get("filter") ? "none.found" : "no.jobs")]));
        fill(queues, ...(answer.queues.length ? [standing(answer.queues)] : [empty("no.queues")]), ...answer.notes.map((text) => el("p.small.soft", {}, plain(text))));
        fill(workloads, ...(answer.workloads.length ? waiting(answer) : [empty("no.workloads")]));
      }
      if (!answer.row) return;
      fill(one, figures(answer.row), answer.findings.length ? card(t("findings"), null, el("ul.list", {}, ...answer.findings.map(finding))) : null);
      series = even(answer.progress);
      line.show(series.t_ms, series.by);
      fill(points, table(t("job.progress"), [t("moment"), ...PROGRESS.map((part) => t(`of.${part.name}`))], answer.progress.map((point) => [moment(point.seen_ms), ...PROGRESS.map(({ name }) => number(point[name] ?? 0, "count", { job: place.name, figure: name, at_ms: point.seen_ms }))]), [1, 2]));
      fill(ends, ...ended(answer, place.name));
    },
  };
}

const empty = (word) => el("p.empty", {}, t(word));
const severity = (row) => el(`span.severity.${row.severity}`, {}, t(`severity.${row.severity}`));
const state = (row) => t(`job.${row.condition.replaceAll(" ", ".").toLowerCase()}`);
const cell = (row, figure) => number(row[figure], "count", { job: row.job, figure, mark: MARKS[figure] });
const record = (place) => el("span.place", {}, plain(place));
const rest = (shown, all) => (all > shown ? el("p.small.soft", {}, t("more", { count: all - shown })) : null);

function listed({ jobs, jobs_count }) {
  const rows = jobs.map((row) => [el("a", { href: link({ page: "jobs", name: row.job }), "data-key": row.job }, named(row.job)), severity(row), state(row),
    cell(row, "active"), el("span", {}, cell(row, "succeeded"), row.of === null ? "" : ` / ${amount(row.of)}`), cell(row, "failed"), cell(row, "evictions"), cell(row, "lost_core_s")]);
  return [table(t("jobs"), [t("job"), t("state"), t("condition"), t("of.active"), t("of.succeeded"), t("of.failed"), t("of.evictions"), t("of.lost_core_s")], rows, [3, 4, 5, 6, 7]), rest(jobs.length, jobs_count)];
}

/** Rows as `slacktide queue status` has them. */
const standing = (rows) => table(t("queues"), ["ClusterQueue", "Cohort", t("nominal"), t("used"), t("borrowed"), t("phase.pending"), t("admitted"), t("phase.evicting")],
  rows.map((cells) => cells.map((one, at) => (at < 2 ? plain(one) : figure(cells[0], QUEUE[at - 2], one)))), [5, 6, 7]);
const QUEUE = ["nominal", "used", "borrowed", "pending", "admitted", "evicting"];
const figure = (queue, name, value) => number(value, typeof value === "number" ? "count" : "text", { queue, figure: name });

function waiting({ workloads, workloads_count }) {
  const rows = workloads.map((one) => [named(one.name), plain(one.queue), t(`phase.${one.phase}`),
    [plain(one.reason), one.preemptor ? t("preempted.by", { name: plain(one.preemptor) }) : ""].filter(Boolean).join(" · "), record(one.place)]);
  return [table(t("workloads"), [t("workload"), "LocalQueue", t("phase"), t("reason"), t("place")], rows), rest(workloads.length, workloads_count)];
}

const figures = (row) => el("dl.figures", {}, ...FIGURES.map((figure) => el("div", {}, el("dt", {}, t(`of.${figure}`)), el("dd", {}, cell(row, figure)),
  figure === "succeeded" && row.of !== null ? el("dd.small", {}, t("of.all", { count: amount(row.of) })) : null)));

/** Points come where something changed; what held between them is drawn as held. */
function even(progress) {
  if (!progress.length) return { t_ms: [], by: {} };
  const first = progress[0].seen_ms, span = progress.at(-1).seen_ms - first, count = span > 0 ? POINTS : 0;
  const t_ms = Array.from({ length: count + 1 }, (_, at) => first + Math.ceil((span * at) / (count || 1)));
  const held = t_ms.map((at_ms) => progress.findLast((point) => point.seen_ms <= at_ms));
  return { t_ms, by: Object.fromEntries(PROGRESS.map(({ name }) => [name, held.map((point) => point[name] ?? 0)])) };
}

function ended({ failures, evicted, recent, text }, job) {
  const namespace = job.split("/")[0];
  const pod = (name) => el("a", { href: link({ page: "pod", name: `${namespace}/${name}` }), "data-key": `pod/${name}` }, named(name));
  const node = (name) => (name ? el("a", { href: link({ page: "node", name }), "data-key": `node/${name}` }, named(name)) : null);
  const index = (one) => (one.index === undefined || one.index === null ? null : amount(one.index));
  return [
    card(t("job.failures"), null, failures.length ? table(t("job.failures"), [t("reason"), t("pods")], failures.map((one) => [plain(one.why), number(one.pods, "count", { job, figure: "failed", mark: one.why })]), [1]) : empty("no.failures")),
    evicted.length ? card(t("job.evicted"), null, table(t("job.evicted"), [t("page.pod"), t("index"), t("node"), t("rule"), t("threshold"), t("moment")],
      evicted.map((one) => [pod(one.pod), index(one), node(one.eviction.node), plain(one.eviction.rule), plain(one.eviction.threshold || one.eviction.bound || ""), moment(one.eviction.acted_ms)]), [1])) : null,
    recent.length ? card(t("job.recent"), null, table(t("job.recent"), [t("page.pod"), t("index"), t("node"), t("reason"), t("moment")],
      recent.map((one) => [pod(one.pod), index(one), node(one.node), plain(one.why ?? ""), moment(one.seen_ms)]), [1])) : null,
    card(t("job.text"), null, el("pre", { tabIndex: 0, role: "region", "aria-label": t("job.text") }, text.split("\n").map(plain).join("\n"))),
  ];
}
