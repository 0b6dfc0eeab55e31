"""``slacktide agent restore``: lift the limits that an agent left on this node."""
# ruff: noqa: RUF009 - setting() makes a field

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from slacktide.deploy.cli.agent_options import HOST_WORKLOADS, KUBEPODS, groups_of, refuse_both
from slacktide.deploy.runtime.settings import configured, file, folder, node_name, setting, state_folder
from slacktide.deploy.runtime.text import show


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreSettings:
    """The node, and its agent's state folder."""

    node_name: str = setting("Name of this node.", default=node_name, shown="host name")
    cgroup_mount: Path = setting("Mount point of control groups.", folder(), default=Path("/sys/fs/cgroup"))
    proc_mount: Path = setting("Mount point of procfs.", folder(), default=Path("/proc"), hidden=True)
    kubepods: str | None = setting(KUBEPODS, default=None)
    host_workloads: Path | None = setting(HOST_WORKLOADS, file(), default=None)
    inventory: Path | None = setting(
        "File with the node and its pods, in the format of `kubectl get node,pods -o yaml`. Without it, the "
        "agent's last known pods.",
        file(),
        default=None,
    )
    state_folder: Path = setting(
        "State folder of the agent. The command empties it when no limit is left.",
        folder(exists=False),
        default=state_folder,
        shown="/var/lib/slacktide as root, else $XDG_STATE_HOME/slacktide",
    )

    def __post_init__(self) -> None:
        """Reject contradictory options.

        Raises:
            click.UsageError: options exclude each other, or the state folder does not exist.
        """
        refuse_both(self.kubepods, self.host_workloads)
        if self.inventory is None and not self.state_folder.is_dir():
            raise click.UsageError(
                f"the state folder {self.state_folder} does not exist: give its path with --state-folder. If it "
                "was lost, give the node's pods with --inventory"
            )


@click.command("restore", epilog="Example: slacktide agent restore --state-folder /var/lib/slacktide")
@configured(RestoreSettings)
def restore(settings: RestoreSettings) -> None:
    """Lift all limits that an agent left in force on this node, and print them. No agent may run here.

    It lifts the limit of best-effort pods, each knob that the state folder names, and each that holds what the agent's
    rules set. Exit codes: 0 nothing is held any more, 1 something is.
    """
    from slacktide.agents.node.cgroup.kernel import CgroupKernel  # noqa: PLC0415 - not for --help
    from slacktide.agents.node.restoring import restored  # noqa: PLC0415
    from slacktide.deploy.cli import machine  # noqa: PLC0415

    hierarchy, _ = groups_of(settings)
    kernel = CgroupKernel(
        settings.cgroup_mount, settings.proc_mount, settings.kubepods, settings.state_folder, hierarchy.layout
    )
    try:
        done = restored(
            kernel,
            settings.node_name,
            settings.state_folder,
            settings.inventory,
            lambda: machine.node_item(settings.node_name, settings.proc_mount),
        )
    finally:
        kernel.close()
    for one in done.outcomes:
        change = f"{one.knob.knob}: " if one.knob is not None else ""
        show(f"{one.result:<8} {one.target} {change}{one.reason}")
    if not done.clean:
        raise click.ClickException(
            "some limits are still in force, as listed above: correct the reason, then run the command again"
        )
    show(f"no limits are in force on this node; {settings.state_folder} is now empty")
