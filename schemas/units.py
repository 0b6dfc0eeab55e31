"""Kubernetes quantities to integers: CPU in millicores, memory in bytes."""

import re
from decimal import ROUND_CEILING, Decimal

from slacktide.schemas.errors import QuantityError
from slacktide.schemas.text import shown

QUANTITY_CHARS_MAX = 64
"""Kubernetes writes at most 21. The time for a number's digits grows with their square."""

_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?)(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?"
)
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SCALE = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10) ** 3, "M": Decimal(10) ** 6, "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12, "P": Decimal(10) ** 15, "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10, "Mi": Decimal(2) ** 20, "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40, "Pi": Decimal(2) ** 50, "Ei": Decimal(2) ** 60,
}  # fmt: skip


def quantity(text: object) -> Decimal:
    """Read a Kubernetes quantity such as ``500m``, ``2``, ``1.5Gi`` or ``1e3``.

    Raises:
        QuantityError: the text is not a quantity.
    """
    match = None if isinstance(text, bool) else _QUANTITY.fullmatch(_short(text))
    if match is None:
        raise QuantityError(f"{shown(text)} is not a quantity such as 500m, 2 or 4Gi")
    number, suffix = match.groups(default="")
    return Decimal(number) * _SCALE[suffix]


def _short(text: object) -> str:
    """The text of a quantity; "" if it is too long to be one, or of another type."""
    if isinstance(text, str):
        return text.strip() if len(text) <= QUANTITY_CHARS_MAX else ""
    if isinstance(text, int):
        return str(text) if abs(text) < 10**QUANTITY_CHARS_MAX else ""
    return str(text) if isinstance(text, float) else ""


def cpu_milli(text: object) -> int:
    """CPU quantity to millicores, rounded up as Kubernetes does."""
    return int((quantity(text) * 1000).to_integral_value(ROUND_CEILING))


def whole(text: object) -> int:
    """Quantity of an integer resource (bytes, batch millicores), rounded up."""
    return int(quantity(text).to_integral_value(ROUND_CEILING))


def decimal(text: str) -> float | None:
    """A plain decimal of a label or annotation, infinite where it is too large; None where the text is none."""
    return float(text) if len(text) <= QUANTITY_CHARS_MAX and _DECIMAL.fullmatch(text) else None


def cpu_text(milli: int) -> str:
    """Millicores as Kubernetes writes CPU: ``138m``, ``2``."""
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def mem_text(amount: int) -> str:
    """Bytes as Kubernetes writes memory: the largest binary unit that divides them, ``17828Ki``, ``1815637738``."""
    power = 0
    while amount and power < len(_BINARY) - 1 and amount % 1024 == 0:
        amount, power = amount // 1024, power + 1
    return f"{amount}{_BINARY[power]}"


_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def count(number: int, noun: str) -> str:
    """Format a number with its noun, singular for one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
