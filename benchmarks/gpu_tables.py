"""The figures of `on_gpu.py` as tables."""

from collections.abc import Sequence
from typing import Any

from gpu_cases import ENGINES

from flair_nas import Genotype

EPOCHS = (1, 5, 10, 20, 30, 40, 50, 75, 90, 95, 100, 150, 200, 300, 400, 500)  # of a history, those that are shown


def tables(found: Sequence[dict[str, Any]]) -> str:
    """All tables; of several lines of one case the last counts, with the seconds of all."""
    lines = [*{(line["part"], line["case"]): line for line in found}.values()]
    for line in lines:
        own = [other for other in found if (other["part"], other["case"]) == (line["part"], line["case"])]
        line["in_all"] = sum(other.get("seconds", 0) for other in own)
    parts = [of_checks(lines), of_times(lines, "layers"), of_times(lines, "supernet"), of_profiles(lines)]
    return "\n\n".join(part for part in (*parts, of_commands(lines), of_histories(lines)) if part)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown; nothing where there are no rows."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines) if rows else ""


def of_checks(lines: Sequence[dict[str, Any]]) -> str:
    """How far engines are from the equations."""
    rows = []
    for line in lines:
        if line["part"] == "correct":
            verdict = line.get("error") or ("right" if line["ok"] else "**wrong**")
            verdict += f" (no graph: {line['no_graph']})" if "no_graph" in line else ""
            worst = [f"{line['worst']:.1e}", line["of"]] if "worst" in line else ["-", "-"]
            rows.append([line["case"], *worst, verdict])
    return table(["case", "worst error", "of", ""], rows)


def of_times(lines: Sequence[dict[str, Any]], part: str) -> str:
    """Milliseconds of each engine, and MB of the fastest and of what stands beside it."""
    own = [line for line in lines if line["part"] == part and "ms" in line]
    names = list(dict.fromkeys(name for line in own for name in line["ms"]))
    rows = []
    for line in own:
        ms, mb = line["ms"], line["mb"]
        engines = [engine for engine in ENGINES if engine in ms]
        if not engines:
            continue
        best = min(engines, key=lambda engine: ms[engine])
        cells = [f"{ms[name]:.3g}" if name in ms else "-" for name in names]
        cells.append(f"{ms[best] / ms['lstm']:.2f}" if "lstm" in ms else "-")
        cells.append(f"{ms['plain'] / ms[best]:.2f}" if "plain" in ms else "-")
        memory = ", ".join(f"{name} {mb[name]:,.0f}" for name in (best, "lstm", "plain") if mb.get(name) is not None)
        rows.append([line["case"] + (" (no graph)" if "no_graph" in line else ""), *cells, memory or "-"])
    return table([part, *(f"{name} ms" for name in names), "best / LSTM", "plain / best", "MB"], rows)


def of_profiles(lines: Sequence[dict[str, Any]]) -> str:
    """Where the time goes."""
    rows = []
    for line in lines:
        for engine, found in line.get("profile", {}).items():
            kernels = "; ".join(f"{key} x {count}: {ms:.2f}" for key, count, ms in found["kernels"][:4])
            times = [f"{found['ms']:.2f}", f"{found['busy_ms']:.2f}", str(found["launches"])]
            rows.append([line["case"], engine, *times, kernels.replace("|", "/")])
    return table(["profile", "engine", "ms", "ms of kernels", "launches", "the longest"], rows)


def of_commands(lines: Sequence[dict[str, Any]]) -> str:
    """What commands came to."""
    rows = []
    for line in lines:
        if "rc" in line:
            ended = "yes" if line["rc"] == 0 else f"stopped ({line['rc']})"
            genotype = str(Genotype.from_dict(line["genotype"])) if "genotype" in line else "-"
            cells = [line["kernels"] or "auto", f"{line['in_all']:.0f}", ended, str(len(line.get("history", ())))]
            rows.append([f"{line['part']}, {line['case']}", *cells, genotype])
    return table(["command", "engine", "seconds", "ended", "epochs", "genotype"], rows)


def of_histories(lines: Sequence[dict[str, Any]]) -> str:
    """Their valid perplexity, or F1 on dev, over the epochs."""
    rows = []
    for line in lines:
        history = line.get("history", ())
        for number, epoch in enumerate(history, start=1):
            values = [epoch[key] for key in ("valid_perplexity", "perplexity", "dev_f1") if key in epoch]
            if values and (number in EPOCHS or number == len(history)):
                rows.append([f"{line['part']}, {line['case']}", str(number), f"{values[0]:.2f}"])
    return table(["command", "epoch", "valid perplexity or dev F1"], rows)
