// The log itself: a trace from sample to outcome, dead letters, topics with rate and lag.

import { number } from "../arithmetic.js";
import { card, el, fill, plain, table } from "../dom.js";
import { go } from "../place.js";
import { amount, moment, t } from "../words.js";

export const load = (ask, place) => ask("records", { of: place.more.get("of"), node: place.more.get("node"), at: place.at_ms });

export function open() {
  const input = el("input", { id: "trace", type: "text", spellcheck: false, placeholder: "slacktide.node.command.v1 3:1742" });
  const form = el("form", { onsubmit: (event) => { event.preventDefault(); go({ query: { of: input.value.trim() || null, node: null } }); } },
    el("label", { htmlFor: "trace" }, t("trace.of")), input, el("button", { type: "submit" }, t("show")));
  const trace = el("div"), topics = el("div"), lag = el("div"), letters = el("div");
  const root = el("div", {}, el("div.head", {}, el("h1", {}, t("page.records"))), card(t("trace"), null, form, trace),
    card(t("dead.letters"), null, letters), el("div.pair", {}, card(t("topics"), null, topics), card(t("lag"), null, lag)));
  root.style.display = "contents";
  return {
    root,
    show(answer, place) {
      const of = place.more.get("of") ?? "";
      if (document.activeElement !== input) input.value = of;
      fill(trace, of ? records(answer.trace, of) : el("p.empty", {}, t("trace.hint")));
      fill(topics, answer.topics.length ? table(t("topics"), [t("topic"), t("per.minute"), t("newest.offset")], answer.topics.map((one) => [plain(one.topic), number(one.records, "count", { topic: one.topic, figure: "records" }), number(one.newest_offset, "count", { topic: one.topic, figure: "newest_offset" })]), [1, 2]) : el("p.empty", {}, t("nothing.recorded")));
      fill(lag, answer.lag.length ? table(t("lag"), [t("worker"), t("topic"), t("partition"), t("behind")], worst(answer.lag).map((one) => [plain(one.worker), plain(one.topic), String(one.partition), number(one.lag, "count", { figure: "lag_records", mark: `${one.topic} ${one.partition}:` })]), [2, 3]) : el("p.empty", {}, t("no.ticks")));
      fill(letters, answer.letters.length ? table(t("dead.letters"), [t("moment"), t("from"), t("key"), t("reader"), t("reason"), t("place")],
        answer.letters.map((one) => [moment(one.at_ms), plain(one.from), plain(one.key), plain(one.reader), plain(one.reason), el("span.place", {}, plain(one.place))])) : el("p.severity.ok", {}, t("no.letters")));
    },
  };
}

const worst = (lag) => [...lag].sort((a, b) => (b.lag ?? -1) - (a.lag ?? -1)).slice(0, 100);

const records = (found, of) => found.length ? el("ol.life", {}, ...found.map((one) => el("li", {}, el("div", {}, el("strong", {}, plain(one.place)), " ", el("span.soft", {}, moment(one.at_ms))),
  el("div", {}, plain(summary(one.line))),
  one.trace && one.trace !== of ? el("button.number.small", { type: "button", "data-key": one.place, onclick: () => go({ query: { of: one.trace } }) }, t("whole.trace")) : null,
  el("details", {}, el("summary", {}, t("record")), el("pre", { tabIndex: 0 }, plain(pretty(one.line)).replaceAll("\\u000a", "\n")))))) : el("p.empty", {}, t("no.trace"));

/** What a record comes to, in its own words: its answer or result, by which rule, and the figures that it holds. */
function summary(line) {
  const body = parsed(line)?.body ?? {}, hold = body.hold?.[0], use = body.use ?? body.node_use;
  const words = [body.answer, body.result, body.origin, body.rule ?? hold?.rule, body.bound || hold?.bound, body.reason];
  if (hold?.limits?.be_cfs_quota_us) words.push(`limit ${amount((1000 * hold.limits.be_cfs_quota_us) / (hold.limits.be_cfs_period_us ?? 100000), "milli")}`);
  if (body.evict?.length) words.push(`evict ${body.evict.map((one) => `${one.namespace}/${one.name}`).join(", ")}`);
  if (body.pod) words.push(`${body.pod.namespace}/${body.pod.name}`);
  if (body.batch_cpu_milli !== undefined) words.push(`batch-cpu ${amount(body.batch_cpu_milli, "milli")}`);
  if (use?.cpu_milli !== undefined) words.push(`CPU ${amount(use.cpu_milli, "milli")}`);
  return words.filter(Boolean).join(" · ");
}

const parsed = (line) => { try { return JSON.parse(line); } catch { return null; } };

function pretty(line) {
  const body = parsed(line);
  return body === null ? line : JSON.stringify(body, null, 2);
}
