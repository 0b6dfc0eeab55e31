"""Loads TLS files of a folder, such as a mounted cert-manager Secret. They may change at any time."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from slacktide.agents.files import Stamp, stamp_of
from slacktide.schemas.errors import SlacktideError

log = logging.getLogger(__name__)

FILES = ("tls.crt", "tls.key")


class CertificateError(SlacktideError):
    """A file is invalid; the message has the folder and the reason."""


class Certificate:
    """The certificate for new connections. Existing connections keep theirs.

    Args:
        folder: has ``tls.crt`` and ``tls.key``, PEM, the key without a password.

    Raises:
        CertificateError: a file is invalid. Later the last valid pair stays in use.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stamps_read = self._stamps()
        self._now = self._read()
        self._trouble = ""
        self.context = self._read()
        """The context of the listening socket."""
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        """Select the current certificate, in each handshake, also without SNI."""
        self._renew()
        connection.context = self._now

    def _renew(self) -> None:
        try:
            if (stamps := self._stamps()) == self._stamps_read:
                return
            self._now = self._read()
        except CertificateError as exc:
            if self._trouble != str(exc):
                log.warning("cannot load the certificate; the last valid one remains in use", extra={"why": str(exc)})
            self._trouble = str(exc)
        else:
            self._stamps_read, self._trouble = stamps, ""
            log.info("loaded a new certificate", extra={"folder": str(self._folder)})

    def _stamps(self) -> tuple[Stamp | None, ...]:
        return tuple(stamp_of(self._folder / name) for name in FILES)

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        certificate, key = (self._folder / name for name in FILES)
        try:
            context.load_cert_chain(certificate, key, password="")
        except OSError as exc:  # includes SSLError
            raise self._error(exc) from exc
        return context

    def _error(self, exc: OSError) -> CertificateError:
        accepted = f"{' and '.join(FILES)} in PEM, with a key without password"
        return CertificateError(f"--cert-folder {self._folder}: {exc.strerror or exc}; accepted: {accepted}")
