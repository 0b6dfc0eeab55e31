"""Suggests similar commands and names for an unknown one."""

from collections.abc import Iterable

import click

from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.text import similar

NEAR = 5


class Group(click.Group):
    """Suggests similar names for an unknown command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the command of the first argument. Raises click.UsageError: it is unknown."""
        names = self.list_commands(ctx)
        if args[0] not in names and (meant := similar(args[0], names)):
            ctx.fail(f"no such command {args[0]!r}; did you mean {' or '.join(meant)}?")
        return super().resolve_command(ctx, args)


class NotFoundError(SlacktideError):
    """A name without records in Kafka."""


def near(name: str, known: Iterable[str]) -> str:
    """Return suggestions for a message."""
    names = sorted(known)
    found = similar(name, names, count_max=NEAR, cutoff=0.5) or names[:NEAR]
    more = f" and {len(names) - len(found)} more" if len(names) > len(found) else ""
    return f"known: {', '.join(found)}{more}" if found else "none is known"
