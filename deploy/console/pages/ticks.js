// One stream of ticks for all tabs of a browser: it opens only six connections to one host, and each stream keeps one.

const AGAIN_MS = 2000;
const ports = new Set();
let last;

function spread(tick) {
  last = tick;
  for (const port of ports) port.postMessage(tick);
}

/** A browser connects anew after a broken connection, but not after a refusal, such as of a proxy while the console starts. */
function follow() {
  const source = new EventSource("api/ticks");
  source.addEventListener("tick", (event) => spread(JSON.parse(event.data)));
  source.addEventListener("error", () => {
    spread(null);
    if (source.readyState === EventSource.CLOSED) setTimeout(follow, AGAIN_MS);
  });
}

onconnect = ({ ports: [port] }) => {
  ports.add(port);
  if (last !== undefined) port.postMessage(last);
};
follow();
