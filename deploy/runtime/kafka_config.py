"""``--kafka-config``: the file with the connection settings for Kafka."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from slacktide.schemas.connection import ENVIRONMENT, Security, parse
from slacktide.schemas.errors import ConfigError, Finding

log = logging.getLogger(__name__)


def read(path: Path | None, environment: Mapping[str, str]) -> Security:
    """Read connection settings from file and environment; default: plain text.

    Raises:
        ConfigError: the file is unreadable or invalid, or names unusable files.
    """
    security = parse("" if path is None else _text(path), "" if path is None else str(path), environment)
    if security.encrypted:
        from slacktide.streams.kafka.connecting import tls  # noqa: PLC0415 - loads Kafka: not for --help

        tls(security)
    return security


def _text(path: Path) -> str:
    try:
        text = path.read_text()
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise ConfigError(
            [Finding(file=str(path), field="--kafka-config", value=f"{why}", accepted="a file with lines KEY=VALUE")]
        ) from exc
    if mode & stat.S_IROTH and "password" in text:
        log.warning(
            "%s: every user of this machine can read the password in it; to restrict access: chmod o= %s", path, path
        )
    return text


def forget() -> None:
    """Remove the settings from the environment of child processes: the embedded broker has no TLS and no login."""
    for name in [name for name in os.environ if name.startswith(ENVIRONMENT)]:
        del os.environ[name]
