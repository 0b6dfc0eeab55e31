"""TLS whose certificate changes between two connections."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from slacktide.agents.cluster.webhook.certificates import CertificateError, read
from slacktide.agents.cluster.webhook.metrics import CERTIFICATE_UNTIL
from slacktide.agents.cluster.webhook.rotation import Pair


class Tls:
    """What is served now. Connections that stand keep what they began with."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._now = _context(pair)
        self.context = _context(pair)
        """For the listening socket: each handshake takes what is served at its moment."""
        self.context.sni_callback = self._choose
        CERTIFICATE_UNTIL.set(pair.until_ms / 1000)

    def serve(self, pair: Pair) -> bool:
        """Serve this pair from now on; says whether it is another one."""
        if pair == self._pair:
            return False
        self._now, self._pair = _context(pair), pair
        CERTIFICATE_UNTIL.set(pair.until_ms / 1000)
        return True

    def _choose(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = self._now


def in_folder(folder: Path) -> Pair:
    """The pair in a folder, as cert-manager's Secrets are mounted: ``tls.crt`` and ``tls.key``.

    Raises:
        CertificateError: a file cannot be read.

    """
    try:
        return read((folder / "tls.crt").read_bytes(), (folder / "tls.key").read_bytes())
    except (OSError, CertificateError) as exc:
        raise CertificateError(f"{folder}: {exc}; it holds tls.crt and tls.key, as cert-manager writes them") from exc


def _context(pair: Pair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with tempfile.NamedTemporaryFile(suffix=".pem") as pem:  # ssl reads from files alone; only its owner can read it
        pem.write(pair.certificate + b"\n" + pair.key)
        pem.flush()
        context.load_cert_chain(pem.name)
    return context
