"""Arguments and exit codes of the command. Parsing loads neither torch nor Flair, so help is immediate."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from flair_nas.cli.charlm import add_parser as add_charlm
from flair_nas.cli.convert import add_parser as add_convert
from flair_nas.cli.distil import add_parser as add_distil
from flair_nas.cli.embed import add_parser as add_embed
from flair_nas.cli.forgetting import add_parser as add_forgetting
from flair_nas.cli.genotypes import add_parser as add_genotypes
from flair_nas.cli.lm import add_parser as add_lm
from flair_nas.cli.report import add_parser as add_report
from flair_nas.cli.search import add_parser as add_search
from flair_nas.cli.tag import add_parser as add_tag
from flair_nas.cli.tune import add_parser as add_tune
from flair_nas.errors import FlairNasError, brief, did_you_mean, printable
from flair_nas.runs.signals import interrupt_on_signal
from flair_nas.version import __version__

EXIT_CODES = """exit codes: 0 done; 1 something failed (disk, memory, a defect), or a search learned nothing;
2 unusable arguments or input; 130 stopped by Ctrl-C or SIGTERM, with a checkpoint left where the command trains"""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line. The error for an unknown word suggests close ones.

    No flag begins with a dash and a digit. Such a word is a value, as -5m, which its setting then refuses.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def error(self, message: str) -> NoReturn:
        choice = re.fullmatch(r"argument \w+: invalid choice: '(.*)' \(choose from (.*)\)", message, re.DOTALL)
        if choice:
            known = re.findall(r"[\w-]+", choice[2])
            message = f"unknown: {brief(choice[1])}; {did_you_mean(choice[1], known)}there are {', '.join(known)}"
        message = re.sub(r"^argument (--[\w-]+)[^:]*: must", r"\1 must", message)
        raise FlairNasError(f"{message}; {self.prog} --help tells more")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command."""
    parser: argparse.ArgumentParser = _Parser(
        prog="flair-nas",
        description="Searched recurrent cells for Flair: find them on text, and train and use taggers with them.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    help = "show the version; with -v also those of libraries, and the kernels"
    parser.add_argument("--version", action="version", version=f"flair-nas {__version__}", help=help)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    train = (add_search, add_forgetting, add_tune, add_distil, add_convert, add_tag, add_lm, add_charlm, add_embed)
    for add_parser in (*train, add_report, add_genotypes):
        add_parser(verbs)
    return parser


def run(argv: Sequence[str]) -> int:
    """Parse arguments and run the action. Print an error in one line, and return the exit code."""
    try:
        with interrupt_on_signal():
            if sorted(argv) in (["--version", "-v"], ["--verbose", "--version"]):
                from flair_nas.cli.version import describe

                print(*describe(), sep="\n")
                return 0
            if argv[:1] == ["select"]:
                raise FlairNasError("flair-nas select is now flair-nas tune --vary layer rate; its --help tells more")
            arguments, unknown = build_parser().parse_known_args(argv)
            if unknown:
                raise FlairNasError(_describe_unknown(unknown, arguments))
            return int(arguments.run(arguments))
    except KeyboardInterrupt as stop:
        return _fail(str(stop) or "stopped", 130)
    except BrokenPipeError:  # the reader of the output has ended, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # also if a Ctrl-C led to it, as on a full disk
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), 1)
    except Exception as error:
        if _comes_from_interrupt(error):  # libraries may convert it during their import
            return _fail("stopped", 130)
        if isinstance(error, FlairNasError):
            return _fail(str(error), 2)
        from flair_nas.runs.memory import is_out_of_memory  # it loads torch

        if is_out_of_memory(error):
            return _fail("not enough memory; a smaller --hidden-size, --batch-size or --bptt needs less", 1)
        raise


def _describe_unknown(unknown: Sequence[str], arguments: argparse.Namespace) -> str:
    """Return the error for words that are neither flags nor arguments."""
    flag = next((word.partition("=")[0] for word in unknown if word.startswith("-")), None)
    if flag is None:
        are_numbers = "seeds" in arguments and all(word.isdigit() for word in unknown)
        hint = "; separate several numbers by commas: --seeds 1,2,3" if are_numbers else ""
        return f"unexpected: {' '.join(map(brief, unknown))}{hint}"
    known = list(arguments.action._option_string_actions)
    if flag in known:
        return f"{flag} must come after the action: {arguments.action.prog} {flag} ..."
    return f"unknown flag {flag}: {did_you_mean(flag, known)}{arguments.action.prog} --help lists them"


def _comes_from_interrupt(error: BaseException | None) -> bool:
    """Return True if a KeyboardInterrupt is among the causes of an error."""
    seen: set[int] = set()  # an error can be its own cause
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False


def _fail(message: str, code: int) -> int:
    print(f"flair-nas: {printable(message)}", file=sys.stderr)
    return code
