"""What an agent needs of a node's kernel to end best-effort pods, and to stop them."""

from __future__ import annotations

from typing import Protocol


class BestEffortPods(Protocol):
    """The pods whose groups lie in the best-effort group. Of nobody else anything is ever done, whatever is asked."""

    @property
    def freeze_trouble(self) -> str:
        """Why no pod can be frozen on this node; "": they can."""

    def processes(self, uid: str) -> int:
        """How many processes run in a pod; 0: none, or the pod is gone.

        Raises:
            CgroupError: it is not a best-effort pod, or must not be ended, or its processes cannot be read.

        """

    def terminate(self, uid: str) -> None:
        """Ask a pod's processes to end; a frozen pod goes on to do so.

        Raises:
            CgroupError: as in ``processes``, or not all could be asked.

        """

    def kill(self, uid: str) -> None:
        """End a pod's processes now. Some may need a moment: see ``processes``.

        Raises:
            CgroupError: as in ``processes``, or the kernel refused.

        """

    def freeze(self, uid: str) -> bool:
        """Stop a pod's processes. False: some stop only when the kernel is done with something for them.

        Raises:
            CgroupError: as in ``processes``, or the kernel refused, or cannot.

        """

    def thaw(self, uid: str) -> None:
        """Let a pod's processes go on; of a pod that is gone nothing is wanted.

        Raises:
            CgroupError: as in ``processes``, or it stays frozen.

        """

    def frozen(self) -> frozenset[str]:
        """Uids of the pods that are frozen, whoever did it.

        Raises:
            CgroupError: that cannot be read.

        """
