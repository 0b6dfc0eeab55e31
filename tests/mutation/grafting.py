"""Put a broken module into a running process: its functions get other code, whoever has imported them.

It is a short cut: what survives so is run again with all modules imported anew.
"""

import sys
from functools import cached_property
from types import FunctionType, ModuleType
from typing import Any


class GraftError(Exception):
    """A change cannot be made so."""


def graft(name: str, source: str) -> None:
    """Change a loaded module to what another source makes of it.

    Raises:
        GraftError: it cannot be.
        Exception: whatever the source does when it is imported.

    """
    module, fresh = sys.modules[name], ModuleType(name)
    exec(compile(source, str(module.__file__), "exec"), vars(fresh))
    for key, new in vars(fresh).items():
        old = vars(module).get(key)
        if isinstance(new, type) and isinstance(old, type):
            if new.__module__ == name:
                _class(old, new)
        elif (function := _function(new)) is not None:
            if function.__module__ == name:
                _code(_function(old), function)
                getattr(old, "cache_clear", lambda: None)()
        elif not key.startswith("__") and new != old:
            _everywhere(key, old, new)


def _class(old: Any, new: Any) -> None:
    for key, made in vars(new).items():
        function = _function(made)
        if function is not None and function.__module__ == new.__module__:
            _code(_function(vars(old).get(key)), function)
    if hasattr(new, "_field_defaults"):
        old.__new__.__defaults__ = new.__new__.__defaults__
        old._field_defaults.update(new._field_defaults)


def _function(one: Any) -> FunctionType | None:
    """The function in a property, a class method or a cache."""
    for part in ("fget", "func" if isinstance(one, cached_property) else "fget", "__func__", "__wrapped__"):
        one = getattr(one, part, one) if not isinstance(one, FunctionType) else one
    return one if isinstance(one, FunctionType) else None


def _code(old: FunctionType | None, new: FunctionType) -> None:
    if old is None or old.__code__.co_freevars != new.__code__.co_freevars:
        raise GraftError(new.__qualname__)
    old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__


def _everywhere(key: str, old: Any, new: Any) -> None:
    for module in list(sys.modules.values()):
        if vars(module).get(key) is old:
            setattr(module, key, new)
