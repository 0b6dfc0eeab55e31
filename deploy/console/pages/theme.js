// Dark or light: as the system wants it, until the switch says otherwise.

const system = matchMedia("(prefers-color-scheme: dark)");
const kept = () => { try { return localStorage; } catch { return {}; } };

export const theme = () => kept().theme ?? (system.matches ? "dark" : "light");

function show() {
  document.documentElement.dataset.theme = theme();
  dispatchEvent(new Event("theme"));
}

export function turn() {
  kept().theme = theme() === "dark" ? "light" : "dark";
  show();
}

system.addEventListener("change", show);
show();
