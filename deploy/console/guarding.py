"""Access control: on loopback all local users, elsewhere requests with the token; and the certificate.

The files of token and certificate may change at any time, such as those of a mounted Secret.
"""

import base64
import hmac
import ipaddress
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar
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
T = TypeVar("T")
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
        return (
            None
            if hmac.compare_digest(given.encode(errors="surrogateescape"), token.encode())
            else (401, "a token is required")
        )
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
    except ValueError:  # not base64, not ASCII, or not UTF-8 inside
        return ""


class TokenError(SlacktideError):
    """The token is invalid; the message has the reason."""


def usable(token: str) -> str:
    """Return the token, unchanged. Raises TokenError if it is too short."""
    if len(token) < TOKEN_LENGTH_MIN:
        raise TokenError(f"the token has {len(token)} characters; accepted: at least {TOKEN_LENGTH_MIN}")
    return token


class CertificateError(SlacktideError):
    """A file is invalid; the message has the folder and the reason."""


class _Reloaded(Generic[T]):
    """The last valid value of some files; it is read again after a change, until it is valid."""

    def __init__(self, what: str, files: Sequence[Path], read: Callable[[], T], where: Mapping[str, str]) -> None:
        self._what, self._files, self._read, self._where = what, files, read, where
        self._stamps, self._value, self._trouble = self._stamps_now(), read(), ""

    def now(self) -> T:
        """Return the value in force."""
        if (stamps := self._stamps_now()) != self._stamps:
            try:
                self._value = self._read()
            except SlacktideError as exc:
                if self._trouble != str(exc):
                    text = "cannot load the %s; the last valid one remains in use"
                    log.warning(text, self._what, extra={"why": str(exc)})
                self._trouble = str(exc)
            else:
                self._stamps, self._trouble = stamps, ""
                log.info("loaded a new %s", self._what, extra=self._where)
        return self._value

    def _stamps_now(self) -> list[Stamp | None]:
        return [stamp_of(file) for file in self._files]


def token_file(path: Path) -> Callable[[], str]:
    """Return a function that returns the token of a file with one line, in UTF-8, reloaded on change.

    Raises TokenError if the token is invalid. Later the last valid one stays in use.
    """

    def read() -> str:
        try:
            return usable(path.read_text().strip())
        except (OSError, UnicodeDecodeError) as exc:
            raise TokenError(f"--token-file {path}: {exc}") from exc

    return _Reloaded("token", [path], read, {"file": str(path)}).now


def certificate(folder: Path) -> ssl.SSLContext:
    """Return the listening socket's context with ``tls.crt`` and ``tls.key``, in PEM, reloaded on change.

    Each handshake selects the current files, also without SNI. Existing connections keep theirs.

    Raises:
        CertificateError: a file is invalid. Later the last valid pair stays in use.
    """
    files = [folder / name for name in FILES]

    def read() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(files[0], files[1], password="")
        except OSError as exc:  # includes SSLError
            accepted = f"{' and '.join(FILES)} in PEM, with a key without password"
            raise CertificateError(f"--cert-folder {folder}: {exc.strerror or exc}; accepted: {accepted}") from exc
        return context

    reloaded = _Reloaded("certificate", files, read, {"folder": str(folder)})

    def choose(connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = reloaded.now()

    context = read()
    context.sni_callback = choose
    return context
