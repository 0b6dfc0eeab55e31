"""Prints what the images hold besides Slacktide itself, as pyproject.toml has it: one requirement a line."""

import tomllib
from pathlib import Path

EXTRAS = ("stream", "cluster", "console")

project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
for requirement in [
    *project["dependencies"],
    *(one for name in EXTRAS for one in project["optional-dependencies"][name]),
]:
    print(requirement.partition(";")[0])  # noqa: T201 - for the shell
