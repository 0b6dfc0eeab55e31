"""Files in the formats of others, with what differs from test to test filled in."""

from pathlib import Path
from string import Template
from typing import Any

import yaml

FILES = Path(__file__).with_name("files")


def filled(file: str, /, **given: object) -> str:
    return Template((FILES / file).read_text()).substitute(given)


def read_filled(file: str, /, **given: object) -> Any:
    """One of JSON or YAML."""
    return yaml.safe_load(filled(file, **given))
