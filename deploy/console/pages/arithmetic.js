// A number that opens its arithmetic: the text of `slacktide explain` for that moment.

import { el, plain } from "./dom.js";
import { ask } from "./feed.js";
import { amount, t } from "./words.js";

/** The moment of what is on the page: a number is explained as it stands there, though the log has gone on. */
export const shown = { at_ms: null };

const dialog = document.getElementById("dialog");

/**
 * @param {number|null} value
 * @param {string} unit milli, bytes, permille, centi (hundredths of a percent), ms, count
 * @param {{node?: string, pod?: string, job?: string, service?: string, topic?: string, queue?: string, figure: string, mark?: string, span?: number, shadow?: number, at_ms?: number}} of
 *   what is explained: the lines that name the mark, else the figure, are marked. at_ms: of another moment than the page
 */
export function number(value, unit, of) {
  const text = plain(amount(value, unit));
  const key = `${owner(of) ?? ""}/${of.figure}/${of.at_ms ?? of.shadow ?? ""}`.replace(/\/$/, "");
  return el("button.number", { type: "button", title: t("number.open"), "data-key": key, onclick: () => open(text, of) }, text);
}

export function box(title, ...body) {
  dialog.replaceChildren(el("div", {},
    el("div.top", {}, el("h2", { id: "dialog-title" }, title), el("button", { type: "button", onclick: () => dialog.close() }, t("close"))), ...body));
  if (!dialog.open) dialog.showModal();
  return dialog;
}
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

/** Behind such a line stands what another moment came to: it has other figures than the one that was clicked. */
const OLDER = "neither the history nor Kafka has that record any more";

async function open(value, of) {
  const text = el("pre", { tabIndex: 0 }, t("loading"));
  const whose = owner(of) ?? t("cluster");
  box(`${plain(whose)} · ${known(of.figure)} = ${value}`, el("p.soft.small", {}, t("explain.note")), text);
  try {
    const { mark, at_ms, ...asked } = of;
    const { lines } = await ask("explain", { ...asked, at: at_ms ?? shown.at_ms });
    const older = lines.findIndex((line) => line.startsWith(OLDER));
    const marks = lines.map((line, at) => (older < 0 || at < older) && (of.mark ?? of.figure).split("|").some((part) => line.includes(part)));
    text.replaceChildren(...lines.flatMap((line, index) => [marks[index] ? el("mark", {}, plain(line)) : plain(line), "\n"]));
    text.querySelector("mark")?.scrollIntoView({ block: "center" });
  } catch (error) {
    text.replaceChildren(plain(error.message));
  }
}

const owner = (of) => of.node ?? of.pod ?? of.job ?? of.service ?? of.queue ?? of.topic;
const known = (figure) => { const word = t(`of.${figure}`); return word.startsWith("of.") ? figure : word; };
