"""Defines a click group that suggests similar commands."""

from __future__ import annotations

import difflib

import click


class Group(click.Group):
    """Suggests similar names for an unknown command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the command of the first argument.

        Raises:
            click.UsageError: it is unknown.
        """
        names = self.list_commands(ctx)
        near = difflib.get_close_matches(args[0], names, n=3, cutoff=0.6)
        if args[0] not in names and near:
            ctx.fail(f"no such command {args[0]!r}; did you mean {' or '.join(near)}?")
        return super().resolve_command(ctx, args)
