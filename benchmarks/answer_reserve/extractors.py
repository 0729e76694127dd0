# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Find the final answer in what a model said after its reasoning.

Each extractor takes the answer text and returns the value it states, or None:
no guess is made where none is stated, so that a cut answer counts as missing.
"""

from fractions import Fraction

import regex as re

_BOXED = re.compile(r"\\f?boxed\s*\{")
_ANSWER = re.compile(
    r"(?:\banswer\b\W{0,4}(?:\s*(?:is|:|=))+|####)[ \t]*(?P<value>[^\n]+)",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"(?P<sign>[-\u2212]?)\s*"
    r"(?:\\[dt]?frac\s*\{\s*(?P<top>\d+)\s*\}\s*\{\s*(?P<bottom>\d+)\s*\}"
    r"|(?P<whole>\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?P<decimals>\.\d+)?"
    r"(?:\s*/\s*(?P<over>\d+))?)"
)
_NOISE = re.compile(r"\\[,;:! ]|\\(?:text|mathrm|mathbf|textbf)\b|[$*_{}]|\\\(|\\\)")


def without_cut_number(text: str) -> str:
    """A cut text without the number it ends in, which may have gone on."""
    return re.sub(r"\d[\d.,/]*\Z", "", text)


def boxed(text: str) -> str | None:
    r"""The content of the last complete `\boxed{...}`, braces balanced."""
    found = None
    for match in _BOXED.finditer(text):
        depth = 1
        for position in range(match.end(), len(text)):
            depth += {"{": 1, "}": -1}.get(text[position], 0)
            if depth == 0:
                found = text[match.end() : position].strip()
                break
    return found or None


def answer_line(text: str) -> str | None:
    """What follows the last `Answer:`, `the answer is` or `####` on its line."""
    values = [match["value"].strip() for match in _ANSWER.finditer(text)]
    return values[-1] if values and values[-1] else None


def number(text: str) -> Fraction | None:
    """The value of an expression that states one number.

    Reads thousands separators, decimals, fractions, units, currency and LaTeX
    around the number. Of an equation the right side counts; a text with more
    than one number states none.
    """
    stated = re.split(r"=|\\approx", text)[-1]
    # Fractions keep their braces.
    parts = re.split(r"(\\[dt]?frac\s*\{\s*\d+\s*\}\s*\{\s*\d+\s*\})", stated)
    parts[::2] = [_NOISE.sub("", part) for part in parts[::2]]
    matches = [
        match for match in _NUMBER.finditer("".join(parts)) if _has_digits(match)
    ]
    return _value(matches[0]) if len(matches) == 1 else None


def _has_digits(match: re.Match) -> bool:
    return any(match[name] for name in ("top", "whole", "decimals"))


def _value(match: re.Match) -> Fraction | None:
    if match["top"]:
        top, bottom = Fraction(match["top"]), int(match["bottom"])
    else:
        whole = (match["whole"] or "0").replace(",", "")
        top = Fraction(whole + (match["decimals"] or ""))
        bottom = int(match["over"] or 1)
    if bottom == 0:
        return None
    return -top / bottom if match["sign"] else top / bottom


def arithmetic_answer(text: str) -> str | None:
    """The whole number on the last `Answer:` line."""
    return _whole(answer_line(text))


def gsm8k_answer(text: str) -> str | None:
    r"""The number in the last `\boxed{}`, else on the last answer line."""
    stated = boxed(text) or answer_line(text)
    value = number(stated) if stated else None
    return None if value is None else str(value)


def aime_answer(text: str) -> str | None:
    r"""The integer from 0 to 999 that an AIME answer is, stated as for GSM8K."""
    stated = boxed(text) or answer_line(text)
    whole = _whole(stated)
    return whole if whole is not None and 0 <= int(whole) <= 999 else None


def _whole(stated: str | None) -> str | None:
    value = number(stated) if stated else None
    return str(value) if value is not None and value.denominator == 1 else None
