"""What a thread does beside a test, until a block ends."""

import threading
from typing import Self


class Background:
    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        """Go on until ``_over`` is set."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
