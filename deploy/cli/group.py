"""A group of commands that names those that may be meant."""

from __future__ import annotations

import difflib

import click


class Group(click.Group):
    """Where a command is not there, its message names what is near."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first argument names.

        Raises:
            click.UsageError: there is none.

        """
        names = self.list_commands(ctx)
        near = difflib.get_close_matches(args[0], names, n=3, cutoff=0.6)
        if args[0] not in names and near:
            ctx.fail(f"no such command {args[0]!r}; did you mean {' or '.join(near)}?")
        return super().resolve_command(ctx, args)
