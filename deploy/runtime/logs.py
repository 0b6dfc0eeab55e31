"""Logs on stderr: JSON lines for machines, short lines for a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

import orjson

from slacktide.deploy.runtime.text import printable

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_QUIET = {"aiokafka": logging.CRITICAL, "kafka": logging.CRITICAL}
"""Kafka clients log an outage repeatedly. Slacktide's own parts log it once."""


def configure(process: str, level: str, style: Literal["auto", "human", "json"]) -> None:
    """Send all logs of this process to stderr.

    Args:
        process: its name in each line.
        level: minimum level; ``debug`` includes the Kafka client.
        style: ``auto``: human on a terminal, else JSON.
    """
    human = style == "human" or (style == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter(process, _human if human else _json))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name, quiet in _QUIET.items():
        logging.getLogger(name).setLevel(logging.NOTSET if level == "debug" else quiet)
    logging.captureWarnings(capture=True)


class _Formatter(logging.Formatter):
    def __init__(self, process: str, style: Callable[[str, logging.LogRecord, str, dict[str, object]], str]) -> None:
        super().__init__()
        self._process = process
        self._written = style

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line, except tracebacks in the human style."""
        fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        return self._written(self._process, record, trace, fields)


def _json(process: str, record: logging.LogRecord, trace: str, fields: dict[str, object]) -> str:
    line: dict[str, object] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "process": process,
        "logger": record.name,
        "message": record.getMessage(),
    }
    # The record's own fields follow, and never override these.
    line |= {name: value for name, value in fields.items() if name not in line}
    if trace:
        line["error"] = trace
    return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def _human(process: str, record: logging.LogRecord, trace: str, fields: dict[str, object]) -> str:
    when = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
    level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
    text = "".join(f" {name}={value}" for name, value in fields.items())
    line = printable(f"{when} {process:<6} {level}{record.getMessage()}{text}", keep="")
    return line + (f"\n{printable(trace)}" if trace else "")
