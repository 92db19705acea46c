"""Text from outside as text: what a name may be, and how any text prints without effects of its own."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated

from pydantic import AfterValidator

_LONGEST_NAME = 80
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}  # control, direction, halves of a character, line separators
_MARKS = re.compile(r"(?<=\])\(|<(?=[A-Za-z/!?])|[`*\\]")  # links, tags, code and emphasis
_FORMULAS = ("=", "+", "-", "@")


def visible(text: str) -> str:
    r"""Return a text in one line, in which characters without a look stand as escapes such as `\u202e`."""
    return "".join(sign if unicodedata.category(sign) not in _UNSEEN else _escape(sign) for sign in text)


def markdown_text(text: str) -> str:
    """Return a text of one line as Markdown that renders as this text: no link, tag or column of its own."""
    return _MARKS.sub(lambda mark: f"\\{mark[0]}", visible(text)).replace("|", r"\|")


def csv_text(text: str) -> str:
    """Return a text as a cell that no spreadsheet takes for a formula: these get an apostrophe in front."""
    shown = visible(text)
    return f"'{shown}" if shown.startswith(_FORMULAS) else shown


def json_text(document: str) -> str:
    """Return a JSON document in which unseen characters within strings are escaped."""
    if document.isascii():
        return document
    shown = (sign == "\n" or unicodedata.category(sign) not in _UNSEEN for sign in document)
    return "".join(
        sign if is_shown else _escape(sign, json=True) for sign, is_shown in zip(document, shown, strict=True)
    )


def _escape(sign: str, *, json: bool = False) -> str:
    code = ord(sign)
    if code < 0x100 and not json:
        return f"\\x{code:02x}"
    if code < 0x10000:
        return f"\\u{code:04x}"
    if not json:
        return f"\\U{code:08x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def check_name(name: str) -> str:
    """Return a name; raises ValueError, with the rule, unless it is one printable line of at most 80 characters."""
    if not name.strip() or len(name) > _LONGEST_NAME or visible(name) != name:
        raise ValueError(f"give a name of one line, 1 to {_LONGEST_NAME} printable characters")
    return name


Name = Annotated[str, AfterValidator(check_name)]
"""A name that a user defines: of a method, task, pair or study's condition."""
