"""Which policy is in force, by the records of its topic: one rule for every reader."""

from __future__ import annotations

from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.policy.message import DEFAULT, KEY, Policy, read
from slacktide.schemas.writer import supersedes


class InForce:
    """The last good policy of the highest writer epoch.

    An epoch counts within one installation, which is one life of the policy topic. Each writer adopts the id that it
    finds in the topic. So another id means another topic, whose epochs may begin anew.

    Args:
        policy: what is in force before the topic is read, such as what a process stored on disk.
    """

    def __init__(self, policy: Policy = DEFAULT) -> None:
        self.policy = policy
        self.refused = ""
        """Why the newest record of the topic is not in force, and what to do; "": it is."""
        self.by_epoch = False
        """Whether this reader refuses it for its epoch, though others may follow it."""

    def take(self, key: bytes | None, value: bytes | None, place: str) -> bool:
        """Read one record of the topic.

        Args:
            key: the record's.
            value: the record's.
            place: topic, partition and offset, for ``refused``.

        Returns:
            Whether its policy is in force now.

        Raises:
            BadMessageError: it is no policy.
        """
        held = self.policy
        if value is None:
            if key == KEY.encode():
                self._refuse(f"{place}: the policy is deleted (a null value); {held.version or 'none'} stays in force; "
                             "publish a policy again")  # fmt: skip
            return False
        try:
            policy = read(key, value)
        except BadMessageError as exc:
            if key == KEY.encode():  # a record of another key replaces no policy
                self._refuse(f"{place}: {exc}; {held.version} stays in force; publish a valid policy")
            raise
        if not supersedes(policy, held):
            self._refuse(
                f"{place}: policy {policy.version} has writer_epoch {policy.writer_epoch}, accepted: at least "
                f"{held.writer_epoch} in installation {held.installation or 'without id'}; {held.version} stays in "
                "force; stop the writer with the lower epoch, or upgrade it if it writes no installation",
                by_epoch=True,
            )
            return False
        self.policy, self.refused, self.by_epoch = policy, "", False
        return True

    def _refuse(self, why: str, *, by_epoch: bool = False) -> None:
        self.refused, self.by_epoch = why, by_epoch
