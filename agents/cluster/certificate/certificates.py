"""Creates and reads self-signed certificates, and the Secret that shares them."""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from slacktide.agents.cluster.certificate.rotation import Held, Pair
from slacktide.schemas.errors import SlacktideError

SKEW = timedelta(minutes=5)
"""Tolerated clock skew of API servers."""
_CERTIFICATE, _KEY, _BUNDLE = "tls.crt", "tls.key", "ca.crt"
_NEXT_CERTIFICATE, _NEXT_KEY, _TRUSTED, _RETIRED = "next.crt", "next.key", "next.trusted-ms", "retired.crt"


class CertificateError(SlacktideError):
    """Not a certificate with its key."""


def made(names: frozenset[str], *, common_name: str, now_ms: int, life_ms: int) -> Pair:
    """Return a new pair for these DNS names and addresses."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.fromtimestamp(now_ms // 1000, UTC)
    until = now + timedelta(milliseconds=life_ms)
    serial = x509.random_serial_number()
    # A unique subject: some clients find issuers by name, and two are trusted during rotation.
    own = ((NameOID.COMMON_NAME, common_name), (NameOID.SERIAL_NUMBER, f"{serial:x}"))
    name = x509.Name([x509.NameAttribute(kind, text) for kind, text in own])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - SKEW)
        .not_valid_after(until)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in sorted(names)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
        until_ms=int(until.timestamp()) * 1000,
        names=names,
    )


def read(certificate: bytes, key: bytes) -> Pair:
    """Read a pair from PEM; of a chain, the first certificate.

    Raises:
        CertificateError: it is unreadable, or key and certificate do not match.
    """
    try:
        found = x509.load_pem_x509_certificate(certificate)
        private = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError) as exc:
        raise CertificateError(f"{_CERTIFICATE} or {_KEY}: {exc}") from exc
    if private.public_key() != found.public_key():
        raise CertificateError(f"{_CERTIFICATE} and {_KEY} do not match")
    return Pair(
        certificate=certificate,
        key=key,
        until_ms=int(found.not_valid_after_utc.timestamp()) * 1000,
        names=frozenset(_names(found)),
    )


def secret_data(held: Held) -> dict[str, str | None]:
    """``data`` of the Secret; null removes a field in a merge patch."""
    following = held.following
    trusted = "" if held.trusted_ms is None else str(held.trusted_ms)
    parts = {
        _CERTIFICATE: held.served.certificate,
        _KEY: held.served.key,
        _BUNDLE: held.bundle,
        _NEXT_CERTIFICATE: b"" if following is None else following.certificate,
        _NEXT_KEY: b"" if following is None else following.key,
        _TRUSTED: trusted.encode(),
        _RETIRED: held.retired,
    }
    return {name: base64.b64encode(part).decode() if part else None for name, part in parts.items()}


def held_of(data: Mapping[str, str]) -> Held:
    """Parse ``data`` of the Secret.

    Raises:
        CertificateError: a field is missing or unreadable.
    """
    try:
        parts = {name: base64.b64decode(text, validate=True) for name, text in data.items()}
        trusted_ms = int(parts[_TRUSTED]) if _TRUSTED in parts else None
    except (binascii.Error, ValueError) as exc:
        raise CertificateError(f"the Secret's data: {exc}") from exc
    following = read(parts[_NEXT_CERTIFICATE], parts.get(_NEXT_KEY, b"")) if _NEXT_CERTIFICATE in parts else None
    served = read(parts.get(_CERTIFICATE, b""), parts.get(_KEY, b""))
    return Held(served=served, following=following, trusted_ms=trusted_ms, retired=parts.get(_RETIRED, b""))


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    addresses = found.get_values_for_type(x509.IPAddress)
    return [*found.get_values_for_type(x509.DNSName), *map(str, addresses)]
