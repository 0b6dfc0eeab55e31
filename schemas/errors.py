"""Every error that Slacktide raises on purpose. Each states what, where and what to do."""

from dataclasses import dataclass


class SlacktideError(Exception):
    """The root of all errors raised on purpose."""


class BadMessageError(SlacktideError):
    """A record's body does not match the schema of its topic."""

    def __init__(self, kind: str, why: str) -> None:
        self.kind = kind
        self.why = why
        super().__init__(f"not a {kind}: {why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One error, or setting without effect, in an operator's file."""

    file: str
    field: str
    """"": the file as a whole."""
    value: str
    accepted: str
    """"": any other value."""

    def __str__(self) -> str:
        return f"{self.file}: {self.described}"

    @property
    def described(self) -> str:
        """The field with its value, and what is accepted."""
        return self.found + (f": accepted: {self.accepted}" if self.accepted else "")

    @property
    def found(self) -> str:
        """The field with its value."""
        return f"{self.field}: {self.value}" if self.field else self.value


class ConfigError(SlacktideError):
    """An operator's file is invalid; the last valid one stays in force."""

    def __init__(self, findings: list[Finding]) -> None:
        self.findings = findings
        super().__init__("\n".join(str(finding) for finding in findings))


class TextError(SlacktideError, ValueError):
    """Text that somebody else wrote cannot be read."""

    def __init__(self, where: str, why: str) -> None:
        self.where = where
        self.why = why
        super().__init__(f"{where}: {why}" if where else why)


class QuantityError(TextError):
    """Not a Kubernetes quantity."""

    def __init__(self, why: str) -> None:
        super().__init__("", why)


class CgroupError(SlacktideError):
    """A control file could not be read, parsed or written."""

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"{path}: {why}")


class ZonesError(SlacktideError):
    """A kernel or kubelet file about NUMA zones is unreadable, torn or malformed."""

    def __init__(self, where: str, why: str) -> None:
        self.where = where
        self.why = why
        super().__init__(f"{where}: {why}")


class LogError(SlacktideError):
    """Kafka could not be reached, or refused the request."""


class RecordRefusedError(LogError):
    """Kafka refused a record for its size or content. The connection works."""


class RightsError(LogError):
    """Kafka authenticated the client, but denies it the request."""


class CaseError(SlacktideError):
    """A calculation's input cannot be computed."""

    def __init__(self, field: str, why: str) -> None:
        self.field = field
        self.why = why
        super().__init__(f"{field}: {why}")


TEXT_CHARS_MAX = 500


def failure(stage: str, error: Exception) -> str:
    """Describe why a record could not be used, for its dead letter: a line or two of valid UTF-8.

    Args:
        stage: the failed step. A bad message has its own reason.
        error: the exception.
    """
    text = str(error) if isinstance(error, BadMessageError) else f"{stage} failed: {type(error).__name__}: {error}"
    return text[:TEXT_CHARS_MAX].encode(errors="backslashreplace").decode()
