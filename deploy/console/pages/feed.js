// What the server says: one question at a time and page, and a tick each second of which all viewers get the same.

/** @throws {Error} with the server's reason */
export async function ask(path, given = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(given)) if (value !== null && value !== undefined && value !== "") query.set(key, value);
  const answer = await fetch(`api/${path}${query.size ? "?" + query : ""}`);
  const body = await answer.json().catch(() => ({ error: `${answer.status} ${answer.statusText}` }));
  if (!answer.ok) throw new Error(body.error ?? answer.statusText);
  return body;
}

/** Call with each tick, and with null where the server is away. */
export function ticks(heard) {
  const { port } = new SharedWorker("ticks.js");
  port.onmessage = ({ data }) => heard(data);
}
