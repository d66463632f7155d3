"""What benchmarks that write a JSON line for each measurement share, and tables of them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flair_nas.nn.processor import read_processor

RESULTS = Path(__file__).parent / "results"
"""Kept results, a file for each experiment."""


def put(found: dict, out: Path | None) -> None:
    """Prints figures as a line of JSON, with the name of the processor, and adds it to a file."""
    line = rounded(found | {"processor": processor()})
    print(json.dumps(line), flush=True)
    if out:
        append(line, out)


def append(line: dict, file: Path) -> None:
    """Adds a line to a file."""
    with open(file, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(rounded(line)) + "\n")


def replace_lines(file: Path, lines: list[dict], is_old: Callable[[dict], bool]) -> None:
    """Writes lines to a file in place of its old ones; all others stay."""
    others = [line for line in lines_so_far(file) if not is_old(line)]
    text = "".join(json.dumps(line) + "\n" for line in [*map(rounded, lines), *others])
    file.write_text(text, encoding="utf-8")


def rounded(data: Any) -> Any:
    """JSON data with eight digits of each number."""
    if isinstance(data, float):
        return float(f"{data:.8g}")
    if isinstance(data, dict):
        return {key: rounded(value) for key, value in data.items()}
    return [*map(rounded, data)] if isinstance(data, list | tuple) else data


def lines_in(file: Path) -> list[dict]:
    """What a file of such lines holds."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def lines_so_far(file: Path | None) -> list[dict]:
    """What a file of such lines holds, nothing if it is not there yet."""
    return lines_in(file) if file and file.exists() else []


def as_table(rows: list[list[str]]) -> str:
    """Rows as a Markdown table, the first one its heading."""
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]])


def holm(chances: dict[str, float]) -> dict[str, float]:
    """The p values of a family of tests, corrected for their number (Holm, 1979)."""
    corrected, least = {}, 0.0
    for place, (name, p) in enumerate(sorted(chances.items(), key=lambda item: item[1])):
        least = max(least, min(1.0, p * (len(chances) - place)))
        corrected[name] = least
    return corrected


def as_p(p: float) -> str:
    """A p value, in a table."""
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def processor() -> str:
    """The name of this machine's processor; empty where the system does not tell."""
    return read_processor().get("model name", "")
