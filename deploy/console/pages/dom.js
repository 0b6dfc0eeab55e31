// Elements made of text alone: nothing that a record holds is ever read as HTML.

/**
 * @param {string} name such as "p" or "p.soft.small"
 * @param {Object} [given] properties; `on…` are listeners, `data-…`, `aria-…` and `role` attributes
 * @param {...(Node|string|number|null)} children text becomes text
 */
export function el(name, given = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const made = document.createElement(tag);
  if (classes.length) made.className = classes.join(" ");
  for (const [key, value] of Object.entries(given)) {
    if (value === null || value === undefined) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key in made && key !== "list") made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((one) => one !== null && one !== undefined));
  return made;
}

/** A text that cannot steer what surrounds it: controls and marks of direction are written out. */
export function plain(value) {
  return String(value).replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, (one) => "\\u" + one.codePointAt(0).toString(16).padStart(4, "0"));
}

/** A name of a node, pod, namespace: on its own for the direction of writing. */
export const named = (value) => el("bdi", {}, plain(value));

/** Keep what stands there, where it is the same. */
export function setText(where, value) {
  const text = String(value);
  if (where.textContent !== text) where.textContent = text;
}

/** Put children in place of others, unless they would read the same: focus and selection stay. */
export function fill(where, ...children) {
  const holder = document.createElement("div");
  holder.append(...children.filter((one) => one !== null && one !== undefined));
  if (where.innerHTML === holder.innerHTML && where.dataset.filled) return;
  const focus = where.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  where.dataset.filled = "1";
  where.replaceChildren(...holder.childNodes);
  if (focus) where.querySelector(`[data-key="${CSS.escape(focus)}"]`)?.focus();
}

/** A table. Cells are texts or nodes; `right` holds the columns of numbers. */
export function table(caption, head, rows, right = []) {
  const at = (index) => (right.includes(index) ? "right" : "");
  return el("div.scroll", { tabIndex: 0, role: "region", "aria-label": caption },
    el("table", {},
      el("thead", {}, el("tr", {}, ...head.map((text, index) => el("th", { scope: "col", className: at(index) }, text)))),
      el("tbody", {}, ...rows.map((cells) => el("tr", {}, ...cells.map((cell, index) => el("td", { className: at(index) }, cell ?? "–")))))));
}

/** A box with a title. `head` stands beside the title. */
export const card = (title, head, ...body) =>
  el("section.card", { "aria-label": title }, el("div.top", {}, el("h2", {}, title), head), ...body);

const root = document.documentElement;
/** A colour of the style sheet, as it is now. */
export const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
