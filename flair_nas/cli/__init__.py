"""The command `flair-nas`, one file per verb."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from flair_nas.runs.signals import exit_on_signal, ignore_signals


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with arguments, and return the exit code.

    None takes the arguments of the process. Then signals are ignored after this call, and OpenMP is set up.
    """
    with exit_on_signal():  # until the action handles signals itself
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            if getattr(sys, name) is None:  # the parent process closed it
                setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # for the rest of the process
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # the terminal may not know all characters
                stream.reconfigure(errors="backslashreplace")
        if argv is None and "OMP_WAIT_POLICY" not in os.environ:  # set before torch reads it
            os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # idle threads sleep soon: docs/performance.md
        from flair_nas.cli.command import run  # this import takes tenths of a second

        code = run(sys.argv[1:] if argv is None else argv)
    if argv is None:  # Python alone shuts down now
        ignore_signals()
        exec("")  # Python forgets an interrupt that left code made from text; else it would end by SIGINT
    return code
