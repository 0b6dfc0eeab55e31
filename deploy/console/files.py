"""The pages' static files, read once from the wheel: HTML, CSS, modules and texts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class File:
    """A static file."""

    body: bytes
    kind: str
    etag: str


def page_files() -> dict[str, File]:
    """Return the files by path, such as ``views/node.js``."""
    return dict(_under(files("slacktide.deploy.console") / "pages", ""))


def _under(folder: Traversable, prefix: str) -> Iterator[tuple[str, File]]:
    for one in folder.iterdir():
        if one.is_dir():
            yield from _under(one, f"{prefix}{one.name}/")
        elif (kind := KINDS.get(one.name[one.name.rfind(".") :])) is not None:
            body = one.read_bytes()
            yield prefix + one.name, File(body, kind, f'"{hashlib.sha256(body).hexdigest()[:16]}"')
