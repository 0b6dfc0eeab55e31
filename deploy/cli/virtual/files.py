"""A virtual machine as files: cgroup mount and /proc in a folder, so that the very same agent reads and writes them.

No reader ever sees half a file:

- A text is written elsewhere and renamed into place: who opens the file reads the old text or the new one, whole. So a
  reader opens anew each time, as the agent does with plain files. (A write in place would keep descriptors good, but
  Linux lets a reader on another CPU catch both texts: measured, with both spinning, 2 in 100 reads on ext4.)
- A group's folder is made elsewhere and renamed into place, and renamed away before it is taken apart.
- Control files (quota, period, weight) are written once, when the group appears, and again only to undo a write
  that the kernel would have refused. Between, they belong to whoever manages the node.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from slacktide.deploy.cli.virtual import texts
from slacktide.deploy.cli.virtual.machine import Group, Machine
from slacktide.schemas.errors import CgroupError


class Projection:
    """One machine's files. Call ``read_back``, then ``machine.step``, then ``write_files``."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        """Lay the files out below an empty folder, best one in memory: ext4 writes what is replaced to disk at once.

        Raises:
            FileExistsError: the folder already holds a machine.

        """
        self.machine = machine
        self.cgroup_mount, self.proc_mount = folder / "cgroup", folder / "proc"
        self._aside = folder / "aside"
        self._groups: dict[str, Group] = {}
        self._written: dict[Path, str] = {}
        for made in (self.cgroup_mount, self._aside, self.proc_mount / "pressure"):
            made.mkdir(parents=True)
        self.write_files()

    def write_files(self) -> None:
        """Show the machine as it is now: figures of all groups, new pods, no vanished ones."""
        for path in [path for path, group in self._groups.items() if self.machine.groups.get(path) is not group]:
            self._remove(path)
        for path, group in self.machine.groups.items():
            if path in self._groups:
                self._write_all(path, self._texts(group), skip=self._control)
            else:
                self._make(path, group)
        for name, text in texts.proc(self.machine).items():
            self._write(self.proc_mount / name, text)

    def read_back(self) -> list[CgroupError]:
        """Take over what was written into control files since the last time.

        Returns:
            Writes that the kernel would have refused. They are undone in the files.

        """
        asked = [group for group in self._groups.values() if group.path and self._asks(group)]
        errors: dict[str, CgroupError] = {}
        # A file system has no order of writes to go by: what only a parent's or child's change allows is tried again.
        for _ in range(len(asked)):
            errors = {group.path: error for group in asked if (error := self._take_over(group)) is not None}
            asked = [group for group in asked if group.path in errors]
            if not asked:
                break
        for group in asked:
            self._write_all(group.path, self._texts(group), only=self._control)
        return list(errors.values())

    @property
    def _control(self) -> tuple[str, ...]:
        return texts.CONTROL_V1 if self.machine.version == 1 else texts.CONTROL_V2

    def _texts(self, group: Group) -> dict[str, dict[str, str]]:
        """Hierarchy ("" on v2) to file name to text."""
        return texts.v1(group) if self.machine.version == 1 else {"": texts.v2(group)}

    def _file(self, group: Group, name: str) -> Path:
        return self.cgroup_mount / ("cpu" if self.machine.version == 1 else "") / group.path / name

    def _asks(self, group: Group) -> bool:
        """Whether a control file says something else than was last seen there. An emptied one is about to be filled."""
        differ = False
        for name in self._control:
            text = _read(self._file(group, name))
            if text and text != self._written[self._file(group, name)]:
                self._written[self._file(group, name)] = text
                differ = True
        return differ

    def _take_over(self, group: Group) -> CgroupError | None:
        said = {name: self._written[self._file(group, name)] for name in self._control}
        try:
            if self.machine.version == 1:
                quota_us, period_us = texts.quota_of_v1(said["cpu.cfs_quota_us"], said["cpu.cfs_period_us"])
                weight = said["cpu.shares"]
            else:
                quota_us, period_us = texts.quota_of_v2(said["cpu.max"], group.period_us)
                weight = said["cpu.weight"]
            self.machine.set_quota(group.path, quota_us, period_us)
            self.machine.set_weight(group.path, texts.number(weight))
        except CgroupError as error:
            return error
        return None

    def _make(self, path: str, group: Group) -> None:
        self._groups[path] = group
        for hierarchy, files in self._texts(group).items():
            place = self.cgroup_mount / hierarchy / path
            if place.exists():  # the mount itself
                self._write_all(path, {hierarchy: files})
                continue
            new = self._aside / "new"
            new.mkdir()
            for name, text in files.items():
                (new / name).write_text(f"{text}\n")
                self._written[place / name] = text
            place.parent.mkdir(exist_ok=True)
            new.rename(place)

    def _remove(self, path: str) -> None:
        group = self._groups.pop(path)
        for hierarchy, files in self._texts(group).items():
            gone = self._aside / "gone"
            (self.cgroup_mount / hierarchy / path).rename(gone)
            shutil.rmtree(gone)
            for name in files:
                del self._written[self.cgroup_mount / hierarchy / path / name]

    def _write_all(
        self, path: str, files: dict[str, dict[str, str]], *, skip: tuple[str, ...] = (), only: tuple[str, ...] = ()
    ) -> None:
        for hierarchy, named in files.items():
            for name, text in named.items():
                if name not in skip and (not only or name in only):
                    self._write(self.cgroup_mount / hierarchy / path / name, text)

    def _write(self, file: Path, text: str) -> None:
        if self._written.get(file) != text:
            part = self._aside / "part"
            part.write_text(f"{text}\n")
            part.replace(file)
            self._written[file] = text


def _read(file: Path) -> str:
    """What was written last: a writer that shortens a file may not have cut the old tail off yet."""
    return file.read_text().partition("\n")[0].strip()
