"""No task is left with an error that nobody looked at: asyncio would log it as "never retrieved", without its cause."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("agents", "deploy", "streams")
HELPER = "streams/tasks.py"
NO_TASKS = {
    "agents/cluster/watching.py": {"self._absent"},
    "agents/http.py": {"timer"},
    "agents/node/ahead.py": {"self._timer", "timer"},
    "agents/node/loop.py": {"self._deadline"},
    "deploy/runtime/process.py": {"ending"},
    "streams/engine/rebuilding.py": {"later"},
    "streams/engine/lifetime.py": {"self.failure"},  # a future, which it looks at
    "deploy/console/server.py": {"task"},  # of a request: aiohttp looks at it
}
"""What else is cancelled: timers, mostly."""


def cancelled(path: Path) -> set[str]:
    """What a file cancels itself."""
    calls = (one.func for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.Call))
    return {ast.unparse(one.value) for one in calls if isinstance(one, ast.Attribute) and one.attr == "cancel"}


SHIELDING = {"deploy/cli/demo.py", "deploy/console/server.py"}
"""Who is cancelled before a shielded task ends looks at its error no more: it needs ``unwatched``."""


def test_what_is_shielded_is_unwatched() -> None:
    texts = {path.relative_to(ROOT): path.read_text() for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    shielding = {str(path) for path, text in texts.items() if "asyncio.shield(" in text}

    assert shielding == SHIELDING
    assert all("unwatched(" in texts[Path(name)] for name in shielding)


def test_tasks_are_ended_by_the_helper_which_looks_at_their_errors() -> None:
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    found = {str(path.relative_to(ROOT)): cancelled(path) for path in files}

    assert found.pop(HELPER) == {"task"}
    assert {name: what for name, what in found.items() if what} == NO_TASKS
