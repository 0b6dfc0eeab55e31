"""Common parts of long-running processes: event loop, signals, logs and endpoints."""

import asyncio
import json
import logging
import os
import signal
import ssl
import sys
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import click
import orjson
import uvloop

from slacktide.agents.clock import Clock, SystemClock
from slacktide.deploy.runtime.endpoints import Endpoints
from slacktide.deploy.runtime.settings import PORT, setting
from slacktide.deploy.runtime.text import printable
from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.health import Health
from slacktide.streams.tasks import ended

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_QUIET = {"aiokafka": logging.CRITICAL, "kafka": logging.CRITICAL}
"""Kafka clients log an outage repeatedly. Slacktide's own parts log it once."""
log = logging.getLogger(__name__)
DRAIN_S = 9.0
"""A stop that takes longer is forced, below the promised 10 s."""
BEAT_S = 1.0
STUCK_S = 10.0
STOPPED_S = 180.0
"""A task that should run once a minute counts as stopped after this time."""
Work = Callable[[asyncio.Event, Health], Coroutine[Any, Any, None]]


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
        self._process, self._written = process, style

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
    try:
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # a name of a file that is no UTF-8, or a number beyond 64 bits
        return json.dumps(line, default=str)


def _human(process: str, record: logging.LogRecord, trace: str, fields: dict[str, object]) -> str:
    when = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
    level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
    text = "".join(f" {name}={value}" for name, value in fields.items())
    line = printable(f"{when} {process:<6} {level}{record.getMessage()}{text}", keep="")
    return line + (f"\n{printable(trace)}" if trace else "")


def metrics_port(default: int) -> Any:
    """Return the setting of a process's own port for its metrics."""
    return setting(
        "Port of /metrics, /live, /ready and /fresh. 0: a free port, which is logged at start.", PORT, default=default
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The log settings."""

    log_level: str = setting(
        "Lowest level that is logged.", click.Choice(["debug", "info", "warning", "error"]), default="info"
    )
    log_format: Literal["auto", "human", "json"] = setting(
        "Format of log lines on stderr. auto: human on a terminal, otherwise json.",
        click.Choice(["auto", "human", "json"]),
        default="auto",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings(LogSettings):
    """Logs and endpoints of a process."""

    metrics_host: str = setting("Host address of /metrics, /live, /ready and /fresh.", default="127.0.0.1")
    metrics_port: int = metrics_port(0)


def run(name: str, settings: ProcessSettings, work: Work) -> None:
    """Run ``work`` with logs and endpoints until it returns, or SIGTERM or SIGINT.

    It receives the stop event, and the health for ``/live``, ``/ready`` and ``/fresh``. Raises SystemExit with 1 if it
    failed; the reason is in the logs.
    """
    configure(name, settings.log_level, settings.log_format)
    health = Health()

    async def served(stop: asyncio.Event) -> None:
        beat = _Beat(health)
        with Endpoints(settings.metrics_host, settings.metrics_port, health, beat.stuck, name=name) as endpoints:
            log.info("serving /metrics, /live, /ready, /fresh", extra={"url": endpoints.url})
            beating = asyncio.create_task(beat.run())
            try:
                await work(stop, health)
            finally:
                await ended(beating)

    until_stopped(served)


def until_stopped(work: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Run ``work`` on uvloop; the first SIGTERM or SIGINT sets its event, the second exits immediately.

    Raises SystemExit with 1 if the work failed; the reason is in the logs.
    """

    def on_signal(name: signal.Signals, stop: asyncio.Event) -> None:
        if stop.is_set():
            log.warning("second stop signal: exiting immediately", extra={"signal": name.name})
            os._exit(128 + name)
        log.info("stopping", extra={"signal": name.name})
        stop.set()
        _cut_short_later()

    async def main() -> bool:
        stop = asyncio.Event()
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, on_signal, name, stop)
        try:
            await work(stop)
        except SlacktideError as exc:
            log.error("%s", exc)  # noqa: TRY400 - raised on purpose: the message is complete
            return False
        except Exception:
            log.exception("stopped by an unexpected error")
            return False
        return True

    before = set(threading.enumerate())
    with asyncio.Runner(loop_factory=new_loop) as runner:
        done = runner.run(main())
        ending = _cut_short_later()  # leftover tasks are cancelled now, and may ignore it
    for thread in set(threading.enumerate()) - before:
        if not thread.daemon:  # such as Faust's: the interpreter would wait for it
            thread.join()
    ending.cancel()
    if not done:
        raise SystemExit(1)


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of uvloop, whose log is free of an error that only uvloop holds.

    A TLS connection that is given up between TCP's handshake and its own leaves a future with the error of the latter,
    which whoever gave it up cannot reach. On a busy machine both come at once.
    """

    def unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "future" in context and isinstance(context.get("exception"), ssl.SSLError):
            log.debug("a TLS connection was given up", exc_info=context["exception"])
        else:
            loop.default_exception_handler(context)

    loop = uvloop.new_event_loop()
    loop.set_exception_handler(unhandled)
    return loop


def _cut_short_later() -> threading.Timer:
    def cut_short() -> None:
        log.critical("did not stop within %g s: exiting", DRAIN_S)
        os._exit(1)

    # in a thread, which works even if the loop hangs
    timer = threading.Timer(DRAIN_S, cut_short)
    timer.daemon = True
    timer.start()
    return timer


class _Beat:
    """Detects a blocked event loop: the endpoints' threads would not notice."""

    def __init__(self, health: Health, clock: Clock | None = None) -> None:
        self._health = health
        self._clock = SystemClock() if clock is None else clock
        self._last_ns = self._clock.mono_ns()
        self._turns: dict[str, tuple[int, int]] = {}
        """The number of rounds of each task, and when it last changed."""

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(BEAT_S)

    def look(self) -> None:
        """Record that the loop runs, and which of its tasks run."""
        self._last_ns = self._clock.mono_ns()
        for part, count in self._health.turns.items():
            if part not in self._turns or self._turns[part][0] != count:
                self._turns[part] = count, self._last_ns

    def stuck(self) -> str:
        """Return why the process is not live; "": it is live."""
        now_ns = self._clock.mono_ns()
        silent_s = (now_ns - self._last_ns) / 1e9
        if silent_s > STUCK_S:
            return f"the event loop has been blocked for {silent_s:.0f} s"
        stopped_s = {part: (now_ns - since_ns) / 1e9 for part, (_, since_ns) in dict(self._turns).items()}
        return "; ".join(f"{part} stopped {s:.0f} s ago" for part, s in stopped_s.items() if s > STOPPED_S)
