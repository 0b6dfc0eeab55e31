// Where one is: page, object and moment, all in the address, so that a link holds them.

/** @returns {{page: string, name: string, at_ms: number|null, more: URLSearchParams}} at_ms null: live */
export function here() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [page = "", ...rest] = path.split("/");
  const more = new URLSearchParams(query);
  const at = Number(more.get("at"));
  return { page: page || "cluster", name: rest.map(decoded).join("/"), at_ms: at > 0 ? at : null, more };
}

function decoded(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

/** An address; what is not given of page, name and moment stays. Other parts of the query go with the page. */
export function link(given = {}) {
  const now = here(), to = { ...now, ...given };
  const more = new URLSearchParams(given.page === undefined ? now.more : "");
  for (const [key, value] of Object.entries(given.query ?? {})) value === null ? more.delete(key) : more.set(key, value);
  to.at_ms === null ? more.delete("at") : more.set("at", String(Math.round(to.at_ms)));
  const name = to.name ? "/" + to.name.split("/").map(encodeURIComponent).join("/") : "";
  return `#/${to.page}${name}${more.size ? "?" + more : ""}`;
}

/** Go there. `quiet`: without an entry in the history of the browser, as the slider moves. */
export function go(given, quiet = false) {
  const to = link(given);
  if (to === location.hash) return;
  if (!quiet) location.hash = to;
  else { history.replaceState(null, "", to); dispatchEvent(new HashChangeEvent("hashchange")); }
}
