"""Equations: TeX in pages becomes MathML, which browsers show without a script."""

from __future__ import annotations

import html
import re

from latex2mathml.converter import convert

_EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.S)


def to_mathml(tex: str, display: bool) -> str:
    r"""Convert one equation.

    Args:
        tex: the equation without its delimiters.
        display: it stands on lines of its own.

    Raises:
        ValueError: a command is not known, such as \foo.
    """
    result = convert(tex, display="block" if display else "inline")
    unknown = re.findall(r"\\[A-Za-z]+", result)
    if unknown:
        raise ValueError(f"unknown command {unknown[0]} in the equation {tex.strip()}")
    return result


def replace_equations(page: str) -> str:
    """Replace all equations that arithmatex has marked in a page of HTML."""
    return _EQUATION.sub(lambda match: to_mathml(html.unescape(match[2]), match[1] == "div"), page)
