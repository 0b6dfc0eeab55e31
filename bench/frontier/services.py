"""The services whose latency is measured, as programs for a control group and as requests."""

import os
import select
import shutil
import socket
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from slacktide.deploy.demo.ls_worker import calibrate, work

HTTP = "GET /page HTTP/1.1\\r\\nHost: a\\r\\nAccept-Encoding: gzip\\r\\n\\r\\n"
PAGE = b"".join(b"line %d of a page that compresses well, %d\n" % (number, number * 7919) for number in range(1500))
REDIS = "local s = 0 for i = 1, 12000 do s = s + (i * 7919) % 13 end return s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One of them."""

    name: str
    program: str
    """What must be installed."""
    command: Callable[[int, Path], list[str]]
    """From a port and a folder."""
    request: str
    """With escapes, as an argument."""

    def lacks(self) -> str | None:
        """The program that this machine lacks."""
        return None if shutil.which(self.program) else self.program


def nginx(port: int, folder: Path) -> list[str]:
    """Compresses a page for each request, with a worker a CPU."""
    (folder / "page").write_bytes(PAGE)
    (folder / "nginx.conf").write_text(
        f"daemon off; user root; worker_processes auto; pid {folder}/pid; error_log {folder}/error.log;\n"
        "events { worker_connections 128; }\n"
        "http { access_log off; default_type text/html; gzip on; gzip_comp_level 6; keepalive_requests 100000000;\n"
        "  keepalive_timeout 1d; client_header_timeout 1d;\n"
        f"  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};\n"
        f"  uwsgi_temp_path {folder}; scgi_temp_path {folder};\n"
        f"  server {{ listen 127.0.0.1:{port}; root {folder}; }} }}\n"
    )
    folder.chmod(0o755)
    return [shutil.which("nginx") or "nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]


def redis(port: int, folder: Path) -> list[str]:
    """One thread: a script of about a millisecond."""
    arguments = {"port": str(port), "bind": "127.0.0.1", "save": "", "appendonly": "no", "dir": str(folder)}
    flags = [text for name, value in arguments.items() for text in (f"--{name}", value)]
    return [shutil.which("redis-server") or "redis-server", *flags, "--loglevel", "warning"]


def threads(port: int, _: Path) -> list[str]:
    """Python with a thread a connection, which compresses outside of the interpreter's lock."""
    return [sys.executable, "-m", __name__, "threads", str(port)]


def demo(port: int, _: Path) -> list[str]:
    """The demo's: a process a CPU, which computes 5 ms a request."""
    return [sys.executable, "-m", __name__, "demo", str(port)]


SERVICES = (
    Service(name="nginx", program="nginx", command=nginx, request=HTTP),
    Service(name="demo", program=sys.executable, command=demo, request="x"),
    Service(
        name="redis",
        program="redis-server",
        command=redis,
        request=f"*3\\r\\n$4\\r\\nEVAL\\r\\n${len(REDIS)}\\r\\n{REDIS}\\r\\n$1\\r\\n0\\r\\n",
    ),
    Service(name="threads", program=sys.executable, command=threads, request=HTTP),
)


class _Page(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = zlib.compress(PAGE, 6)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def _serve_threads(port: int) -> None:
    ThreadingHTTPServer.request_queue_size = 128
    ThreadingHTTPServer(("127.0.0.1", port), _Page).serve_forever()


def _serve_demo(port: int) -> None:
    units = calibrate()
    for _ in range((os.cpu_count() or 1) - 1):
        if os.fork() == 0:
            break
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen(64)
    open_ = {listening}
    while True:
        for one in select.select(open_, [], [])[0]:
            if one is listening:
                open_.add(one.accept()[0])
            elif one.recv(1):
                work(units)
                one.sendall(b"y")
            else:
                open_.remove(one)
                one.close()


if __name__ == "__main__":
    {"threads": _serve_threads, "demo": _serve_demo}[sys.argv[1]](int(sys.argv[2]))
