"""TLS with a certificate that can change between connections, and with client certificates."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slacktide.agents.cluster.certificate.certificates import CertificateError, read
from slacktide.agents.cluster.certificate.rotation import Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """Clients with a certificate of this authority."""

    ca: Path
    names: frozenset[str] = frozenset()
    """Allowed common names; empty: any."""

    def trust(self, context: ssl.SSLContext) -> None:
        """Require a client certificate.

        Raises:
            CertificateError: the authority's file is unreadable.
        """
        try:
            context.load_verify_locations(cafile=self.ca)
        except OSError as exc:  # includes SSLError
            raise CertificateError(f"--client-ca {self.ca}: {exc.strerror or exc}; accepted: a PEM file") from exc
        context.verify_mode = ssl.CERT_REQUIRED

    def refuse(self, certificate: Mapping[str, Any] | None) -> str:
        """Why a client with this certificate (from ``SSLSocket.getpeercert``) is rejected; "": it is accepted."""
        if not certificate:
            return "a client certificate is required"
        subject = [pair for part in certificate.get("subject", ()) for pair in part]
        name = next((text for kind, text in subject if kind == "commonName"), "")
        return (
            "" if not self.names or name in self.names else "the common name of the client certificate is not allowed"
        )


class Tls:
    """The served certificate. Existing connections keep theirs.

    ``until_s`` is called with the expiry in UTC epoch seconds. ``clients``: allowed clients; None: any.

    Raises:
        CertificateError: the clients' authority file is unreadable.
    """

    def __init__(self, pair: Pair, until_s: Callable[[float], None], clients: Clients | None = None) -> None:
        self.clients = clients
        self._until_s = until_s
        self._pair = pair
        self._now = _context(pair, clients)
        self.context = _context(pair, clients)
        """For the listening socket: each handshake uses the current pair."""
        self.context.sni_callback = self._choose
        self._until_s(pair.until_ms / 1000)

    def serve(self, pair: Pair) -> bool:
        """Serve this pair from now on; returns whether it changed."""
        if pair == self._pair:
            return False
        self._now, self._pair = _context(pair, self.clients), pair
        self._until_s(pair.until_ms / 1000)
        return True

    def _choose(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = self._now


def in_folder(folder: Path) -> Pair:
    """Return the pair in a folder, mounted as cert-manager does: ``tls.crt`` and ``tls.key``.

    Raises:
        CertificateError: a file is unreadable.
    """
    try:
        return read((folder / "tls.crt").read_bytes(), (folder / "tls.key").read_bytes())
    except (OSError, CertificateError) as exc:
        raise CertificateError(
            f"{folder}: {exc}; accepted: a folder with tls.crt and tls.key, as cert-manager writes them"
        ) from exc


def _context(pair: Pair, clients: Clients | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with tempfile.NamedTemporaryFile(suffix=".pem") as pem:  # ssl only reads files
        pem.write(pair.certificate + b"\n" + pair.key)
        pem.flush()
        context.load_cert_chain(pem.name)
    if clients is not None:
        clients.trust(context)
    return context
