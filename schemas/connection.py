"""PURE: Kafka client settings, in librdkafka's format, as ``kcat -F`` reads it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from slacktide.schemas.errors import ConfigError, Finding

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""SASL mechanisms with user name and password."""
MECHANISMS = (*PASSWORDS, "OAUTHBEARER")
TOKEN_URL = "file://"  # noqa: S105 - where it is, not what
"""URL prefix of a token file, which is read at each login because its issuer renews it."""
ENVIRONMENT = "SLACKTIDE_KAFKA_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Authentication and encryption settings. Unset ones are ""."""

    protocol: str = "PLAINTEXT"
    ca: str = ""
    """CA file for the brokers' certificates; "": this machine's CAs."""
    names: str = "https"
    """Check of the host name in a broker's certificate: https or none."""
    certificate: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    token_url: str = ""
    file: str = ""
    """The file with the settings; "": environment or none."""

    @property
    def encrypted(self) -> bool:
        """Whether TLS is used."""
        return self.protocol.endswith("SSL")

    @property
    def logs_in(self) -> bool:
        """Whether SASL is used."""
        return self.protocol.startswith("SASL")

    def __str__(self) -> str:
        """For people: protocol and user, without password."""
        whom = f"{self.mechanism} as {self.username or f'the token in {self.token_url}'}" if self.logs_in else ""
        certificate = f"certificate {self.certificate}" if self.certificate else ""
        return ", ".join(part for part in (self.protocol, whom, certificate) if part)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Kafka cluster: bootstrap addresses and security settings."""

    addresses: str
    """``host:port``, several with commas."""
    security: Security = Security()

    def __str__(self) -> str:
        """The addresses alone, for messages and options of other commands."""
        return self.addresses


def options(cluster: Cluster) -> str:
    """Command-line options to reach the same cluster."""
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
"""Key in the file -> field. librdkafka has two names for the mechanism."""
_NAMES = {name: key for key, name in reversed(KEYS.items())}
_UPPER = ("protocol", "mechanism")
_TLS = ("ca", "names", "certificate", "key", "key_password")
_CHOICES = {"protocol": PROTOCOLS, "names": ("https", "none"), "mechanism": MECHANISMS}


def variable(key: str) -> str:
    """The environment variable of a key, which overrides the file."""
    return ENVIRONMENT + key.upper().replace(".", "_")


def parse(text: str, file: str, environment: Mapping[str, str]) -> Security:
    """Read lines of ``KEY=VALUE``; ``#`` begins a comment. No message repeats a value that may be a secret.

    Args:
        text: of the file.
        file: its name, for messages; "": there is none.
        environment: overrides the file.

    Raises:
        ConfigError: an unknown key, an invalid value, or conflicting keys.
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
    """Settings without effect, and missing ones: a password requires SASL, for example."""
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
