"""Access control: on loopback all local users, elsewhere requests with the token."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from urllib.parse import urlsplit

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

    Args:
        token: the required token; "": none, since the console listens on loopback.
        host: the Host header. Without a token, another name indicates DNS rebinding.
        authorization: the Authorization header: Bearer, or Basic with the token as password, as browsers send it.
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
