"""Access control: on loopback all local users, elsewhere requests with the token; and the certificate.

The files of token and certificate may change at any time, such as those of a mounted Secret.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import logging
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from slacktide.agents.files import Stamp, stamp_of
from slacktide.schemas.errors import SlacktideError

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
CHALLENGE = 'Basic realm="slacktide console: any user name, the token as password", charset="UTF-8"'
log = logging.getLogger(__name__)
TOKEN_LENGTH_MIN = 16
FILES = ("tls.crt", "tls.key")


def is_loopback(host: str) -> bool:
    """Return whether an address, or the name in a Host header, is loopback."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def refusal(token: str, host: str, authorization: str) -> tuple[int, str] | None:
    """Return status and reason of a refusal; None: the request is allowed.

    Without a required token, the console listens on loopback: another name in the Host header indicates DNS rebinding.
    The Authorization header is Bearer, or Basic with the token as password, as browsers send it.
    """
    if token:
        given = _token_of(authorization)
        return None if hmac.compare_digest(given.encode(), token.encode()) else (401, "a token is required")
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        name = ""
    return None if is_loopback(name) else (421, f"this console serves only loopback addresses, not {host!r}")


def _token_of(authorization: str) -> str:
    kind, _, value = authorization.partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


class TokenError(SlacktideError):
    """The token is invalid; the message has the reason."""


def usable(token: str) -> str:
    """Return the token, unchanged.

    Raises:
        TokenError: it is too short.
    """
    if len(token) < TOKEN_LENGTH_MIN:
        raise TokenError(f"the token has {len(token)} characters; accepted: at least {TOKEN_LENGTH_MIN}")
    return token


class TokenFile:
    """A token from a file with one line, in UTF-8, reloaded on change.

    Raises:
        TokenError: the token is invalid. Later the last valid one stays in use.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = stamp_of(path)
        self._token = self._read()

    def __call__(self) -> str:
        """Return the token in force."""
        if (stamp := stamp_of(self._path)) != self._stamp:
            self._stamp = stamp
            try:
                self._token = self._read()
                log.info("loaded a new token", extra={"file": str(self._path)})
            except TokenError as exc:
                log.warning("cannot load the token; the last valid one remains in use", extra={"why": str(exc)})
        return self._token

    def _read(self) -> str:
        try:
            return usable(self._path.read_text().strip())
        except (OSError, UnicodeDecodeError) as exc:
            raise TokenError(f"--token-file {self._path}: {exc}") from exc


class CertificateError(SlacktideError):
    """A file is invalid; the message has the folder and the reason."""


class Certificate:
    """The certificate for new connections, from ``tls.crt`` and ``tls.key`` in PEM. Existing connections keep theirs.

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
