// Words of the pages in the chosen language; names of things that users meet elsewhere stay as they are.

const kept = () => { try { return localStorage; } catch { return {}; } };
let words = {};
export let language = "en";

export async function speak(wanted) {
  const found = await fetch(`words/${wanted}.json`);
  words = await found.json();
  language = wanted;
  kept().language = wanted;
  document.documentElement.lang = wanted;
}

export const preferred = () => kept().language ?? (navigator.language.toLowerCase().startsWith("zh") ? "zh-CN" : "en");

/** The word of a key; `{name}` in it is replaced. A key without a word stands for itself. */
export const t = (key, given = {}) => (words[key] ?? key).replace(/\{(\w+)\}/g, (all, name) => given[name] ?? all);

const grouped = (value, digits = 0) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

/** An amount with its unit, as `explain` writes it; "–" where it is not known. */
export function amount(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "text") return value;
  if (unit === "milli") return `${grouped(value)}m`;
  if (unit === "bytes") return `${grouped(value / 2 ** 20)} MiB`;
  if (unit === "ms") return span(value);
  if (unit === "permille") return `${grouped(value)}‰`;
  if (unit === "centi") return `${grouped(value / 100, 2)}%`;
  return grouped(value, Number.isInteger(value) ? 0 : 1);
}

/** How long, in the largest unit that gives two or more. */
export function span(value_ms) {
  if (value_ms === null || value_ms === undefined) return "–";
  for (const [unit_ms, unit] of [[86400000, "d"], [3600000, "h"], [60000, "min"]])
    if (value_ms >= 2 * unit_ms) return `${grouped(value_ms / unit_ms, 1)} ${unit}`;
  return value_ms >= 1000 ? `${grouped(value_ms / 1000, 1)} s` : `${Math.round(value_ms)} ms`;
}

const pad = (value) => String(value).padStart(2, "0");
export function clock(at_ms) {
  const at = new Date(at_ms);
  return `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}
/** In the time zone of whoever looks, which it names. */
export function moment(at_ms) {
  const at = new Date(at_ms), away = -at.getTimezoneOffset();
  const zone = away === 0 ? "UTC" : `UTC${away < 0 ? "−" : "+"}${pad(Math.floor(Math.abs(away) / 60))}:${pad(Math.abs(away) % 60)}`;
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${clock(at_ms)} ${zone}`;
}
