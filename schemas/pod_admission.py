"""How the quotas of a namespace answered for a new pod. Topic slacktide.pod.admission.v1, key: the namespace."""

from typing import Literal

from slacktide.schemas.bounds import Name, TimeMs, Total
from slacktide.schemas.message import Message

Band = Literal["prod", "mid", "batch", "free"]
AdmissionResult = Literal["admitted", "borrowed", "over_quota"]


class QuotaUse(Message, frozen=True, kw_only=True):
    """A requested resource and its quota, in the unit of its field."""

    resource: str
    """A field of ``Resources``, such as ``batch_cpu_milli``."""
    asked: Total
    """What the pod requests of it."""
    used: Total = 0
    """What the quota counted before."""
    quota: Total | None = None
    """None: the band has no quota, and nothing was counted."""

    @property
    def exceeded(self) -> bool:
        """Whether the pod does not fit into the quota."""
        return self.quota is not None and self.used + self.asked > self.quota


class PodAdmission(Message, frozen=True, kw_only=True):
    """The answer for one pod of a namespace with quotas. A controller's retry is another record.

    The API server may still refuse an admitted pod for another reason.
    """

    namespace: Name
    name: Name
    """Where Kubernetes makes the name, its beginning with the ``-``."""
    band: Band
    """The band of the resource that decided."""
    result: AdmissionResult
    """borrowed: admitted beyond the quota, and evicted first."""
    uses: list[QuotaUse]
    """Each requested resource with a quota, and free resources."""
    decided_ms: TimeMs
