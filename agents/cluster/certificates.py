"""Self-signed certificates: created, shared by replicas in a Secret, trusted by clients, and then served over TLS.

A self-signed certificate needs no authority whose key could leak. Its successor is created early, trusted immediately,
and served after a delay, so that a served certificate is always trusted. The former one stays trusted until the next
rotation, for replicas that are behind. The served certificate can change between connections.
"""

import base64
import binascii
import ipaddress
import logging
import ssl
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.objects import Json
from slacktide.agents.kubernetes.resource import CONFLICT, NOT_FOUND, SECRETS, IgnoreStatus
from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.text import integer_of

log = logging.getLogger(__name__)

LIFE_MS = 90 * 24 * 3_600_000
SETTLE_MS = 60_000
"""Time for all API servers to load the new bundle: a hundred times what it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A self-signed certificate and its key."""

    certificate: bytes
    """PEM."""
    key: bytes
    """PEM."""
    until_ms: int
    names: frozenset[str]
    """Its DNS names and addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The pairs that replicas share."""

    served: Pair
    following: Pair | None = None
    """Trusted already, served next."""
    trusted_ms: int | None = None
    """When all configurations were first known to trust the next pair."""
    retired: bytes = b""
    """PEM of the former certificate."""

    @property
    def bundle(self) -> bytes:
        """PEM of all trusted certificates."""
        following = b"" if self.following is None else self.following.certificate
        return self.retired + self.served.certificate + following


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Lifetime of certificates."""

    names: frozenset[str]
    life_ms: int = LIFE_MS
    settle_ms: int = SETTLE_MS


def turned(held: Held | None, terms: Terms, make: Callable[[], Pair], *, trusted: bool, now_ms: int) -> Held:
    """Return the next step, or ``held`` itself if none is due.

    ``trusted``: whether all configurations trust all of ``held.bundle``. ``now_ms`` is UTC epoch time.
    """
    if held is None or now_ms >= held.served.until_ms:
        return _anew(held, make, now_ms)
    if held.following is None:
        # Due: a third of its lifetime is left, or its names changed.
        due = now_ms >= held.served.until_ms - terms.life_ms // 3 or held.served.names != terms.names
        return replace(held, following=make(), retired=b"") if due else held
    if not trusted:
        return held if held.trusted_ms is None else replace(held, trusted_ms=None)
    if held.trusted_ms is None:
        return replace(held, trusted_ms=now_ms)
    if now_ms - held.trusted_ms < terms.settle_ms:
        return held
    return _next(held)


def _anew(held: Held | None, make: Callable[[], Pair], now_ms: int) -> Held:
    """Start again: no trusted pair is served now, so nothing is lost."""
    if held is None or held.following is None or now_ms >= held.following.until_ms:
        return Held(served=make())
    return _next(held)


def _next(held: Held) -> Held:
    """Serve the next pair; the bundle stays unchanged."""
    assert held.following is not None, "asked before"
    return Held(served=held.following, retired=held.served.certificate)


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
    names: list[str] = []
    with suppress(x509.ExtensionNotFound):
        named = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = [*named.get_values_for_type(x509.DNSName), *map(str, named.get_values_for_type(x509.IPAddress))]
    return Pair(
        certificate=certificate,
        key=key,
        until_ms=int(found.not_valid_after_utc.timestamp()) * 1000,
        names=frozenset(names),
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
    """Parse ``data`` of the Secret. Raises CertificateError if a field is missing or unreadable."""
    try:
        parts = {name: base64.b64decode(text, validate=True) for name, text in data.items()}
        trusted_ms = integer_of(parts[_TRUSTED], where=_TRUSTED, least=0) if _TRUSTED in parts else None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """Clients with a certificate of this authority."""

    ca: Path
    names: frozenset[str] = frozenset()
    """Allowed common names; empty: any."""

    def trust(self, context: ssl.SSLContext) -> None:
        """Ask for a client certificate of this authority; one of another ends the handshake.

        A client without one is answered by ``refuse``: as an error of TLS it would be nameless for both sides. Raises
        CertificateError if the authority's file is unreadable.
        """
        try:
            context.load_verify_locations(cafile=self.ca)
        except OSError as exc:  # includes SSLError
            raise CertificateError(f"--client-ca {self.ca}: {exc.strerror or exc}; accepted: a PEM file") from exc
        context.verify_mode = ssl.CERT_OPTIONAL

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
        self._until_s, self._pair = until_s, pair
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


TURNS_MAX = 4
"""Steps per call; more only if other replicas write concurrently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretPlace:
    """The Secret of the certificate."""

    namespace: str
    name: str
    component: str
    """Label for the Secret if it is created here."""


S = TypeVar("S")


class Trust(Protocol[S]):
    """Where clients read which certificates to trust."""

    async def read(self) -> S:
        """Return what clients trust now. Raises ApiError if the API server is unavailable, or denies access."""

    async def have(self, read: S, bundle: bytes) -> bool:
        """Publish the bundle; False: it changed since it was read.

        Raises:
            ApiError: the API server is unavailable, or denies access.
        """


class CertificateManager(Generic[S]):
    """One replica's manager of the shared certificate. ``trust`` is where clients read what to trust."""

    def __init__(
        self, api: ApiServer, place: SecretPlace, trust: Trust[S], terms: Terms, now_ms: Callable[[], int]
    ) -> None:
        self._api, self._place, self._trust = api, place, trust
        self._terms, self._now_ms = terms, now_ms

    async def look(self) -> Pair:
        """Rotate if due, and return the pair to serve.

        Raises:
            ApiError: the API server is unavailable, or denies access.
            CertificateError: the Secret is unreadable.
        """
        held: Held | None = None
        for _ in range(TURNS_MAX):
            # Read trust before the Secret, so that an older bundle never overwrites a newer one.
            trusted_now = await self._trust.read()
            secret: Json | None = None
            with IgnoreStatus(NOT_FOUND):
                secret = await self._api.get(SECRETS, self._place.name, Json, namespace=self._place.namespace)
            held = None if secret is None else self._held(secret)
            trusted = held is not None and await self._trust.have(trusted_now, held.bundle)
            after = turned(held, self._terms, self._make, trusted=trusted, now_ms=self._now_ms())
            if after is held:
                break
            await self._store(after, secret)
        assert held is not None, "the stored certificate is read"
        return held.served

    def _make(self) -> Pair:
        return made(
            self._terms.names,
            common_name=f"{self._place.name}.{self._place.namespace}",
            now_ms=self._now_ms(),
            life_ms=self._terms.life_ms,
        )

    def _held(self, secret: Mapping[str, Any]) -> Held | None:
        if not secret.get("data"):
            return None  # created empty by the manifests, so that no create permission is needed
        try:
            return held_of(secret["data"])
        except CertificateError as exc:
            where = f"Secret {self._place.namespace}/{self._place.name}"
            raise CertificateError(f"{where}: {exc}; delete it, and a new one is created") from exc

    async def _store(self, held: Held, secret: Json | None) -> None:
        """Write the Secret, unless another replica was faster."""
        data, name = secret_data(held), self._place.name
        with IgnoreStatus(CONFLICT, NOT_FOUND):
            if secret is None:
                part = {"app.kubernetes.io/part-of": "slacktide", "app.kubernetes.io/component": self._place.component}
                body: Json = {
                    "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "slacktide", **part}},
                    "type": "kubernetes.io/tls",
                    "data": {key: text for key, text in data.items() if text is not None},
                }
                await self._api.create(SECRETS, body, Json, namespace=self._place.namespace)
            else:
                body = {"metadata": {"resourceVersion": secret["metadata"]["resourceVersion"]}, "data": data}
                await self._api.patch(SECRETS, name, body, Json, namespace=self._place.namespace)
            follows = "" if held.following is None else f", the next one follows in {self._terms.settle_ms / 1000:g} s"
            log.info("wrote the certificate's Secret%s", follows)
