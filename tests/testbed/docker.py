"""A server that answers on a socket as Docker does, for what is asked of it here."""

import json
import re
import socketserver
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from testbed.filled import filled


@dataclass
class Running:
    """A container; its process is in /proc, or in what looks like it."""

    id: str
    name: str
    labels: dict[str, str] | None = field(default_factory=dict)
    pid: int = 0


class DockerServer:
    """``GET /containers/json`` and ``/containers/ID/json``, in the shapes of API 1.47."""

    def __init__(self, socket: Path) -> None:
        self.path = str(socket)
        self.containers: list[Running] = []
        self.asked: list[str] = []
        self.broken: bytes | None = None
        docker = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                docker.asked.append(self.path)
                status, body = docker.answer(self.path)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def address_string(self) -> str:
                return "local"

            def log_message(self, *_: object) -> None:
                pass

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self._server = Server(self.path, Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def answer(self, path: str) -> tuple[int, bytes]:
        if self.broken is not None:
            return 200, self.broken
        if path == "/containers/json":
            return 200, json.dumps([_listed(one) for one in self.containers]).encode()
        inspected = re.fullmatch(r"/containers/([0-9a-f]+)/json", path)
        one = next((one for one in self.containers if inspected and one.id == inspected[1]), None)
        if one is None:
            return 404, b'{"message": "page not found"}'
        body = {"Id": one.id, "Name": f"/{one.name}", "State": {"Status": "running", "Running": True, "Pid": one.pid}}
        return 200, json.dumps(body).encode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _listed(one: Running) -> dict[str, object]:
    return {
        "Id": one.id,
        "Names": [f"/{one.name}"],
        "Labels": one.labels,
        **json.loads(filled("docker-container.json")),
    }
