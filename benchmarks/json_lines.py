"""What benchmarks that write a JSON line for each measurement share."""

import json
from pathlib import Path


def put(found: dict, out: Path | None) -> None:
    """Prints figures as a line of JSON, and adds it to a file."""
    line = json.dumps(found)
    print(line, flush=True)
    if out:
        with open(out, "a", encoding="utf-8") as stream:
            stream.write(line + "\n")


def lines_in(file: Path) -> list[dict]:
    """What a file of such lines holds."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def lines_so_far(file: Path | None) -> list[dict]:
    """What a file of such lines holds, nothing if it is not there yet."""
    return lines_in(file) if file and file.exists() else []


def as_table(rows: list[list[str]]) -> str:
    """Rows as a Markdown table, the first one its heading."""
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]])
