"""Operators' YAML files: validated and watched, the last valid content stays in force. Files replaced atomically."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import yaml

from slacktide.schemas.errors import ConfigError, Finding

T = TypeVar("T")
Stamp = tuple[int, int, int]

BYTES_MAX = 16 * 1024 * 1024
DEPTH_MAX = 100
EVENTS_MAX = 4_000_000

# The C loader is about ten times as fast.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(path: Path) -> object:
    """Read a file with one YAML document.

    Raises:
        ConfigError: unreadable, not YAML, over 16 MiB, nested over 100 levels, or with aliases (which may expand).
    """
    try:
        with path.open("rb") as file:
            content = file.read(BYTES_MAX + 1)
    except FileNotFoundError as exc:
        raise _refused(path, "", "no such file", "") from exc
    except OSError as exc:
        raise _refused(path, "", exc.strerror or str(exc), "a file that can be read") from exc
    if len(content) > BYTES_MAX:
        raise _refused(path, "", "over 16 MiB", "at most 16 MiB")
    try:
        _inspect(path, content)
        return yaml.load(content, Loader=_Loader)  # noqa: S506 - a safe loader
    # The loader also lets through what it meets in a scalar that has another type's tag, such as !!bool foo.
    except (yaml.YAMLError, ValueError, OverflowError, LookupError, AttributeError) as exc:
        mark = getattr(exc, "problem_mark", None)
        text = (str(getattr(exc, "problem", None) or exc) or type(exc).__name__).splitlines()[0][:200]
        raise _refused(path, "" if mark is None else f"line {mark.line + 1}", text, "one YAML document") from exc


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file atomically. Raises OSError: the old content is kept."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(content)
    fresh.replace(path)


def stamp_of(path: Path) -> Stamp | None:
    """Return the stamp of a file, which changes with each write; None: it is unreadable."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class Watched(Generic[T]):
    """The last valid content of a file.

    ``read`` makes a value from the document and the file's name. ``last`` is the last valid value of an earlier run.

    Raises:
        ConfigError: the file is invalid, and there is no last value.
    """

    unlisted = ""
    """Always "": a file lists its pods itself."""

    def __init__(self, path: Path, read: Callable[[object, str], T], *, last: T | None = None) -> None:
        self.path = path
        self.refused = ""
        """Why the current file is refused; "": it is in force."""
        self.findings: list[Finding] = []
        """Each error of a refused file."""
        self._read = read
        self._stamp = stamp_of(self.path)
        try:
            self.value = read(load_yaml(path), str(path))
        except ConfigError as exc:
            if last is None:
                raise
            self.value = last
            self.refused, self.findings = self._text_of(exc), exc.findings

    @property
    def changed(self) -> bool:
        """Whether the file has changed since it was read. Cheap."""
        return stamp_of(self.path) != self._stamp

    def poll(self) -> bool:
        """Read the file if it changed. Return whether ``value`` or ``refused`` changed."""
        stamp = stamp_of(self.path)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            value = self._read(load_yaml(self.path), str(self.path))
        except ConfigError as exc:
            before, self.refused = self.refused, self._text_of(exc)
            self.findings = exc.findings
            return before != self.refused
        before, self.refused = self.refused, ""
        self.findings = []
        changed = value != self.value
        self.value = value
        return changed or bool(before)

    def _text_of(self, exc: ConfigError) -> str:
        return f"{exc}\nthe last valid {self.path} stays in force"


def _inspect(path: Path, content: bytes) -> None:
    """Check the document without building it: deep nesting would crash the C loader."""
    depth = 0
    for count, event in enumerate(yaml.parse(content, Loader=_Loader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        mark: Any = event.start_mark
        if isinstance(event, yaml.AliasEvent):
            raise _refused(path, f"line {mark.line + 1}", f"*{event.anchor}", "no aliases")
        if depth > DEPTH_MAX:
            raise _refused(path, f"line {mark.line + 1}", "nested too deeply", f"{DEPTH_MAX} levels")
        if count > EVENTS_MAX:
            raise _refused(path, f"line {mark.line + 1}", "too many values", f"at most {EVENTS_MAX}")


def _refused(path: Path, field: str, value: str, accepted: str) -> ConfigError:
    return ConfigError([Finding(file=str(path), field=field, value=value, accepted=accepted)])
