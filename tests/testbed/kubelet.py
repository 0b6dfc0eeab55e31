"""A server that speaks as a kubelet does, over HTTPS on loopback, with certificates of its own."""

import contextlib
import json
import socket
import ssl
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from testbed.filled import filled

TOKEN = "first-token"


CURVE, DAY = ec.SECP256R1(), timedelta(days=1)


class Certificates:
    """An authority, and what it signed: for the server at 127.0.0.1, and for a client."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder, self._authority = folder, ec.generate_private_key(CURVE)
        loopback = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
        self.ca = self._signed("ca", self._authority, x509.BasicConstraints(ca=True, path_length=None))
        self.server, self.server_key = self._pair("server", loopback)
        self.client, self.client_key = self._pair("client", x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]))

    def _pair(self, name: str, extension: x509.ExtensionType) -> tuple[Path, Path]:
        key, file = ec.generate_private_key(CURVE), self._folder / f"{name}.key"
        plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        file.write_bytes(key.private_bytes(serialization.Encoding.PEM, *plain))
        return self._signed(name, key, extension), file

    def _signed(self, name: str, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType) -> Path:
        issuer, subject = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in ("kubelet-ca", name))
        public, now = self._authority.public_key(), datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .issuer_name(issuer)
            .subject_name(issuer if key is self._authority else subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
            .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
            .sign(self._authority, hashes.SHA256())
        )
        file = self._folder / f"{name}.crt"
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return file


class KubeletServer:
    def __init__(self, certificates: Certificates) -> None:
        self.token = TOKEN
        self.allowed = True
        self.pods: list[dict[str, object]] = []
        self.manner = "well"
        self.asked = 0
        self.connections = 0
        self._kept: list[ssl.SSLSocket] = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.server, certificates.server_key)
        context.load_verify_locations(certificates.ca)
        context.verify_mode = ssl.CERT_OPTIONAL
        kubelet = self

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def finish_request(self, request: socket.socket, client_address: object) -> None:
                kubelet.connections += 1
                # A client that did not like the certificate, or has gone, is no trouble.
                with contextlib.suppress(OSError), context.wrap_socket(request, server_side=True) as secure:
                    kubelet._kept.append(secure)
                    super().finish_request(secure, client_address)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                kubelet.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """As a kubelet of Kubernetes 1.34 does, or as ill as the manner asks."""
        self.asked += 1
        connection: ssl.SSLSocket = request.connection  # type: ignore[assignment]
        known = request.headers["Authorization"] == f"Bearer {self.token}" or connection.getpeercert()
        if not known:
            _say(request, 401, b"Unauthorized")
        elif not self.allowed:
            text = b"Forbidden (user=agent, verb=get, resource=nodes, subresource(s)=[pods proxy])"
            _say(request, 403, text)
        elif request.path != "/pods":
            _say(request, 404, b"404 page not found\n")
        else:
            getattr(self, f"_{self.manner}")(request)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for connection in self._kept:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def body(self) -> bytes:
        """A PodList; its items have no kind of their own."""
        return json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": self.pods}).encode()

    def _well(self, request: BaseHTTPRequestHandler) -> None:
        _say(request, 200, self.body())

    def _failing(self, request: BaseHTTPRequestHandler) -> None:
        _say(request, 500, b"internal error\n")

    def _garbage(self, request: BaseHTTPRequestHandler) -> None:
        _say(request, 200, b"<html>who are you</html>")

    def _nested(self, request: BaseHTTPRequestHandler) -> None:
        _say(request, 200, b"[" * 100_000)

    def _other(self, request: BaseHTTPRequestHandler) -> None:
        _say(request, 200, b'{"kind": "NodeList", "items": []}')

    def _empty_handed(self, request: BaseHTTPRequestHandler) -> None:
        request.close_connection = True

    def _cut_off(self, request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "1000")
        request.end_headers()
        request.wfile.write(b"{")
        request.close_connection = True

    def _dripping(self, request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "1000")
        request.end_headers()
        for _ in range(200):
            request.wfile.write(b" ")
            time.sleep(0.05)

    def _huge(self, request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(2**40))
        request.end_headers()
        while True:
            request.wfile.write(b" " * 2**16)


def _say(request: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
    request.send_response(status)
    request.send_header("Content-Type", "application/json" if status == 200 else "text/plain; charset=utf-8")
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


def pod(name: str, *, qos: str = "LS", cpu: str = "1", container: str = "0a" * 32) -> dict[str, object]:
    """A pod as a kubelet lists it, in shape and fields as one of Kubernetes 1.34 did."""
    return json.loads(filled("pod.json", name=name, qos=qos, cpu=cpu, container=container))
