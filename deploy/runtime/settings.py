"""Settings of a command: a frozen dataclass from flags, environment, and defaults, in this order.

The option ``--sample-interval`` of any command has the variable ``SLACKTIDE_SAMPLE_INTERVAL``. ``--show-settings``
prints each value with its origin.
"""

import dataclasses
import inspect
import logging
import os
import re
import socket
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from slacktide.deploy.runtime.text import show
from slacktide.schemas.connection import ENVIRONMENT, Cluster, Security, parse, variable
from slacktide.schemas.errors import ConfigError, Finding

log = logging.getLogger(__name__)

C = TypeVar("C", bound=Callable[..., Any])
S = TypeVar("S")

PORT = click.IntRange(0, 65_535)
SECURITY = "slacktide.security"
"""Key of the Kafka connection settings in click's context."""
LOOPBACK_BROKER = Cluster("127.0.0.1:9092")
_LABEL = re.compile(r"(?:[a-z0-9][a-z0-9.-]{0,252}/)?[A-Za-z0-9][A-Za-z0-9._-]{0,62}=[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_WORKLOAD = re.compile(r"[a-z0-9][a-z0-9-]*/[a-z0-9][a-z0-9.-]*")


def read_kafka_config(path: Path | None, environment: Mapping[str, str]) -> Security:
    """Read connection settings from file and environment; default: plain text.

    Raises ConfigError: the file is unreadable or invalid, or names unusable files.
    """
    security = parse("" if path is None else _config_text(path), "" if path is None else str(path), environment)
    if security.encrypted:
        from slacktide.streams.kafka.connecting import tls  # noqa: PLC0415 - loads Kafka: not for --help

        tls(security)
    return security


def _config_text(path: Path) -> str:
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


def forget_kafka_environment() -> None:
    """Remove the settings from the environment of child processes: the embedded broker has no TLS and no login."""
    for name in [name for name in os.environ if name.startswith(ENVIRONMENT)]:
        del os.environ[name]


class HostPort(click.ParamType):
    """``HOST:PORT``, or several, comma-separated."""

    name = "HOST:PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Reject invalid broker addresses."""
        for part in str(value).split(","):
            host, _, port = part.strip().rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) <= 65_535:
                self.fail(f"{part!r} is not HOST:PORT with a port from 1 to 65535", param, ctx)
        return str(value)


class WorkloadName(click.ParamType):
    """``NAMESPACE/NAME`` of a DaemonSet or Deployment."""

    name = "NAMESPACE/NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Reject anything but NAMESPACE/NAME."""
        if not _WORKLOAD.fullmatch(str(value)):
            self.fail(f"{value!r} is not NAMESPACE/NAME", param, ctx)
        return str(value)


class Lines(click.ParamType):
    """Text that may be given several times; in an environment variable, each line is one."""

    name = "TEXT"
    envvar_list_splitter = "\n"


class Label(click.ParamType):
    """``KEY=VALUE`` of a Kubernetes label."""

    name = "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Reject anything but KEY=VALUE."""
        if not _LABEL.fullmatch(str(value)):
            self.fail(f"{value!r} is not KEY=VALUE, such as colocation-agent=slacktide", param, ctx)
        return str(value)


class Kafka(HostPort):
    """Brokers to connect to. Its option also adds ``--kafka-config``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Cluster:
        """Combine addresses and connection settings."""
        security = ctx.meta.get(SECURITY) if ctx is not None else None
        return Cluster(super().convert(value, param, ctx), security or Security())


def setting(text: str, kind: Any = None, *, default: Any, shown: str = "", hidden: bool = False) -> Any:
    """Define a field of a settings class: description with unit, type, default.

    A callable default is called on demand; ``shown`` is its text in help. A tuple as default: the option may be given
    several times.
    """
    metadata = {"help": text, "kind": kind, "hidden": hidden, "shown": shown or True}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def file() -> click.Path:
    """Return the type of a file. Its reader checks existence and content, and may have a last valid content."""
    return click.Path(dir_okay=False, path_type=Path)


def kubeconfig() -> Any:
    """Return the setting of the API server's kubeconfig."""
    return setting(
        "Kubeconfig file of the API server. Without it: $KUBECONFIG, else the pod's service account, else "
        "~/.kube/config.",
        file(),
        default=None,
    )


def folder(*, exists: bool = True) -> click.Path:
    """Return the type of a folder; ``exists``: it must exist."""
    return click.Path(exists=exists, file_okay=False, path_type=Path)


def envvar(name: str) -> str:
    """Return the environment variable of an option."""
    return "SLACKTIDE_" + name.removeprefix("--").upper().replace("-", "_")


def option(*declarations: str, **attributes: Any) -> Callable[[C], C]:
    """Return an option with its environment variable."""
    flag = next(text for text in declarations if text.startswith("--")).partition("/")[0]
    attributes = {"show_default": True} | attributes
    made: Callable[[C], C] = click.option(*declarations, envvar=envvar(flag), show_envvar=True, **attributes)
    return (lambda command: made(_kafka_config(command))) if isinstance(attributes.get("type"), Kafka) else made


bootstrap_option = option(
    "--bootstrap", type=Kafka(), default=LOOPBACK_BROKER, help="Addresses of Kafka brokers, separated by commas."
)


def _kafka_config(command: C) -> C:
    """Add the option. It is eager: processed before the addresses."""

    def secured(ctx: click.Context, _: click.Parameter, value: Path | None) -> None:
        ctx.meta[SECURITY] = read_kafka_config(value, os.environ)

    return option(
        "--kafka-config",
        type=file(),
        is_eager=True,
        expose_value=False,
        callback=secured,
        help="Client configuration file for Kafka: TLS and login, as `kcat -F` reads it. Without it, connections "
        f"are not encrypted. An environment variable such as {variable('sasl.password')} overrides its property "
        "in the file.",
    )(command)


def configured(kind: type[S]) -> Callable[[Callable[[S], None]], Callable[..., None]]:
    """Pass a command its settings. Adds an option per field, and ``--show-settings``."""
    names = [name for made in kind.__mro__ for name in inspect.get_annotations(made)]
    settings: Any = kind  # a dataclass
    fields = sorted(dataclasses.fields(settings), key=lambda field: names.index(field.name))  # own ones come first
    shown_names: list[str] = []
    for field in fields:
        shown_names += [field.name, "kafka_config"] if isinstance(field.metadata["kind"], Kafka) else [field.name]

    def decorate(command: Callable[[S], None]) -> Callable[..., None]:
        @click.pass_context
        def called(ctx: click.Context, /, *, show_settings: bool, **values: Any) -> None:
            if show_settings:
                further = {
                    field.name: ["kafka_config"] for field in fields if isinstance(field.metadata["kind"], Kafka)
                }
                show(shown(ctx, [name for field in fields for name in (field.name, *further.get(field.name, ()))]))
                return
            command(kind(**values))

        called.__doc__ = command.__doc__
        wrapped: Any = click.option(
            "--show-settings", is_flag=True, help="Print each setting with its value and source, and exit."
        )(called)
        for field in reversed(fields):
            wrapped = _option_of(field)(wrapped)
        made: Callable[..., None] = wrapped
        return made

    return decorate


def _option_of(field: dataclasses.Field[Any]) -> Callable[[C], C]:
    factory, meta = field.default_factory, field.metadata
    default = field.default if factory is dataclasses.MISSING else factory
    return option(
        "--" + field.name.replace("_", "-"),
        type=meta["kind"],
        is_flag=isinstance(default, bool),
        multiple=isinstance(default, tuple),
        default=default,
        help=meta["help"],
        hidden=meta["hidden"],
        show_default=meta["shown"],
    )


def shown(ctx: click.Context, names: list[str]) -> str:
    """Format one line per setting: name, value, origin."""
    values = {"kafka_config": ctx.meta[SECURITY].file or None if SECURITY in ctx.meta else None} | ctx.params
    rows = []
    for name in names:
        flag, value = "--" + name.replace("_", "-"), values[name]
        text = ("yes" if value else "no") if isinstance(value, bool) else "-" if value is None else str(value)
        text = ", ".join(value) if isinstance(value, tuple) else text
        match ctx.get_parameter_source(name):
            case ParameterSource.COMMANDLINE:
                origin = f"flag {flag}"
            case ParameterSource.ENVIRONMENT:
                origin = f"environment {envvar(flag)}"
            case _:
                origin = "default"
        rows.append((flag.removeprefix("--"), text, origin))
    name_width, value_width = (max(len(row[column]) for row in rows) for column in (0, 1))
    return "\n".join(f"{name:<{name_width}}  {value:<{value_width}}  {origin}" for name, value, origin in rows)


def node_name() -> str:
    """Return the host name, which is the default node name."""
    return socket.gethostname()


def named(text: str) -> Any:
    """Return the setting of a node's name."""
    return setting(text, default=node_name, shown="host name")


def process_name() -> str:
    """Return host name and process id, unique per machine: a restarted pod gets another name."""
    return f"{node_name()}-{os.getpid()}"


def state_folder() -> Path:
    """Return the state folder: /var/lib/slacktide for root, else under XDG_STATE_HOME."""
    if os.geteuid() == 0:
        return Path("/var/lib/slacktide")
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "slacktide"


def stored(text: str) -> Any:
    """Return the setting of the state folder."""
    shown = "/var/lib/slacktide as root, else $XDG_STATE_HOME/slacktide"
    return setting(text, folder(exists=False), default=state_folder, shown=shown)


def fetch_wait_ms(default: int) -> Any:
    """Return the setting of the longest wait of a fetch."""
    return setting(
        "Longest time in milliseconds that the broker waits for records before it answers a fetch "
        "(fetch.max.wait.ms). Kafka answers as soon as there is a record. The embedded broker looks at half of "
        "this time, at half of the rest, and so on.",
        click.IntRange(1, 5_000),
        default=default,
    )
