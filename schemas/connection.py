"""PURE: how one connects to Kafka, in the words of librdkafka: the file that ``kcat -F`` reads serves here, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from slacktide.schemas.errors import ConfigError, Finding

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""Mechanisms that take a name and a password."""
MECHANISMS = (*PASSWORDS, "OAUTHBEARER")
TOKEN_URL = "file://"  # noqa: S105 - where it is, not what
"""A token is read from a file, anew at each login: whoever issues it renews it there."""
ENVIRONMENT = "SLACKTIDE_KAFKA_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Who both ends are, and whether others can listen. What is not set is ""."""

    protocol: str = "PLAINTEXT"
    ca: str = ""
    """File with the authorities that may have signed a broker's certificate; "": those that this machine trusts."""
    names: str = "https"
    """Whether a broker's certificate must be for the name that it is reached by: https, or none."""
    certificate: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    token_url: str = ""
    file: str = ""
    """Where it was set; "": in the environment, or nowhere."""

    @property
    def encrypted(self) -> bool:
        """Whether by TLS."""
        return self.protocol.endswith("SSL")

    @property
    def logs_in(self) -> bool:
        """Whether by SASL."""
        return self.protocol.startswith("SASL")

    def __str__(self) -> str:
        """For people: by what, and as whom; no password."""
        whom = f"{self.mechanism} as {self.username or f'the token in {self.token_url}'}" if self.logs_in else ""
        certificate = f"certificate {self.certificate}" if self.certificate else ""
        return ", ".join(part for part in (self.protocol, whom, certificate) if part)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Kafka cluster: the addresses of brokers to begin with, and how one connects to them."""

    addresses: str
    """``host:port``, several with commas."""
    security: Security = Security()

    def __str__(self) -> str:
        """The addresses alone, for people and for the options of other commands."""
        return self.addresses


def options(cluster: Cluster) -> str:
    """The options by which another command reaches the same brokers in the same way."""
    file = cluster.security.file
    return f"--bootstrap {cluster}" + (f" --kafka-config {file}" if file else "")


KEYS = {
    "security.protocol": "protocol",
    "ssl.ca.location": "ca",
    "ssl.endpoint.identification.algorithm": "names",
    "ssl.certificate.location": "certificate",
    "ssl.key.location": "key",
    "ssl.key.password": "key_password",
    "sasl.mechanism": "mechanism",
    "sasl.mechanisms": "mechanism",
    "sasl.username": "username",
    "sasl.password": "password",
    "sasl.oauthbearer.token.endpoint.url": "token_url",
}
"""By their names in a file the fields that they fill. librdkafka has two names for a mechanism."""
_NAMES = {name: key for key, name in reversed(KEYS.items())}
_UPPER = ("protocol", "mechanism")
_TLS = ("ca", "names", "certificate", "key", "key_password")
_CHOICES = {"protocol": PROTOCOLS, "names": ("https", "none"), "mechanism": MECHANISMS}


def variable(key: str) -> str:
    """The environment variable that sets the same as a key, and wins over the file."""
    return ENVIRONMENT + key.upper().replace(".", "_")


def parse(text: str, file: str, environment: Mapping[str, str]) -> Security:
    """Read lines of ``KEY=VALUE``; ``#`` begins a comment. No message repeats a value that may be a secret.

    Args:
        text: of the file.
        file: its name, for messages; "": there is none.
        environment: what it sets is taken before what the file sets.

    Raises:
        ConfigError: an unknown key, a bad value, or keys that do not go together.

    """
    findings: list[Finding] = []
    given: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        key, equals, value = (part.strip() for part in line.partition("="))
        if not line.strip() or key.startswith("#"):
            continue
        if not equals:
            findings.append(_finding(file, f"line {number}", "no =", "KEY=VALUE, and # before a comment"))
        elif key not in KEYS:
            findings.append(_unknown(file, key))
        else:
            given[KEYS[key]] = value
    given |= {name: environment[variable(key)] for key, name in KEYS.items() if variable(key) in environment}
    given = {name: value.upper() if name in _UPPER else value for name, value in given.items() if value}
    security = Security(**given, file=file)
    findings += _bad_values(security, given) or _contradictions(security, given)
    if findings:
        raise ConfigError(findings)
    return security


def _bad_values(security: Security, given: Mapping[str, str]) -> list[Finding]:
    found = [
        _finding(security.file, _NAMES[name], given[name], " or ".join(choices))
        for name, choices in _CHOICES.items()
        if name in given and given[name] not in choices
    ]
    if security.token_url and not security.token_url.startswith(f"{TOKEN_URL}/"):
        found.append(_finding(security.file, _NAMES["token_url"], security.token_url, "file:///PATH of a token"))
    return found


def _contradictions(security: Security, given: Mapping[str, str]) -> list[Finding]:
    """What is set in vain, and what is missing: whoever sets a password means it to be asked for."""
    useful, needed = {"protocol"}, set[str]()
    if security.encrypted:
        useful |= set(_TLS)
        needed |= {"certificate", "key"} if {"certificate", "key", "key_password"} & given.keys() else set()
    if security.logs_in:
        needed |= {"mechanism"}
    if security.logs_in and security.mechanism in PASSWORDS:
        needed |= {"username", "password"}
    if security.logs_in and security.mechanism == "OAUTHBEARER":
        needed |= {"token_url"}
    return [*_vain(security, given.keys() - useful - needed), *_missing(security, needed - given.keys())]


def _vain(security: Security, names: set[str]) -> Iterator[Finding]:
    for name in sorted(names):
        protocols = "SSL or SASL_SSL" if name in _TLS else "SASL_SSL or SASL_PLAINTEXT"
        accepted = f"only with security.protocol {protocols}"
        if name in ("username", "password"):
            accepted += f", and sasl.mechanism {', '.join(PASSWORDS)}"
        if name == "token_url":
            accepted += ", and sasl.mechanism OAUTHBEARER"
        yield _finding(security.file, _NAMES[name], f"has no effect in {security}", accepted)


def _missing(security: Security, names: set[str]) -> Iterator[Finding]:
    for name in sorted(names):
        key = _NAMES[name]
        accepted = f"{', '.join(_CHOICES.get(name, ('a value',)))}, here or in {variable(key)}"
        yield _finding(security.file, key, "missing", accepted)


def _unknown(file: str, key: str) -> Finding:
    if key in ("bootstrap.servers", "metadata.broker.list"):
        return _finding(file, key, "not set here", "--bootstrap HOST:PORT, as -b for kcat")
    return _finding(file, key, "unknown", ", ".join(KEYS))


def _finding(file: str, key: str, value: str, accepted: str) -> Finding:
    return Finding(file=file or "environment", field=key, value=value, accepted=accepted)
