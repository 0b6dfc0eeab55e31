"""Three questions a process answers about itself, each with its reason."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Health:
    """Filled by the parts of a process, read by whoever serves ``/live``, ``/ready`` and ``/fresh``.

    live: restart me if not. ready: started, connected, able to work. fresh: what I work on is recent.
    Each is "" when all is well, else what is wrong.
    """

    not_live: str = ""
    not_ready: str = "starting"
    not_fresh: str = "nothing seen yet"
    turns: dict[str, int] = field(default_factory=dict)
    """How often each part that never rests has come round. One that comes round no more is not live."""

    def turned(self, part: str) -> None:
        """This part has come round. It does so at least once a minute, whatever is away."""
        self.turns[part] = self.turns.get(part, 0) + 1
