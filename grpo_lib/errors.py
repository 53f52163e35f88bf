"""Errors that a user reads, in Arabic and English, each with the process exit code it leads to.

Exit codes are a contract with cron and papermill users: 0 complete, 2 wrong input, 3 refused by the gate,
4 stopped by health, 5 interrupted and resumable. Anything else is a defect of this suite.
"""

from __future__ import annotations

EXIT_COMPLETE = 0
EXIT_WRONG_INPUT = 2
EXIT_REFUSED = 3
EXIT_STOPPED = 4
EXIT_INTERRUPTED = 5

# The manifest's word for each exit code.
STATUS = {
    EXIT_COMPLETE: "complete",
    EXIT_WRONG_INPUT: "wrong_input",
    EXIT_REFUSED: "refused",
    EXIT_STOPPED: "stopped",
    EXIT_INTERRUPTED: "interrupted",
}

# First-strong isolate and its end: keeps numbers, paths and names in order inside right-to-left lines.
_FSI, _PDI = "\u2068", "\u2069"


def isolate(text: object) -> str:
    """Wrap `text` in Unicode isolates (UAX #9), so that it keeps its own direction inside an Arabic sentence."""
    return f"{_FSI}{text}{_PDI}"


class GrpoError(Exception):
    """An error with one sentence in each language; both say what is wrong and what to do.

    Args:
        ar: The sentence in Arabic.
        en: The sentence in English.
    """

    exit_code = 1

    def __init__(self, *, ar: str, en: str):
        super().__init__(f"{ar}\n{en}")
        self.ar = ar
        self.en = en


class WrongInput(GrpoError):
    """A parameter, file or environment that the user has to correct."""

    exit_code = EXIT_WRONG_INPUT


class Refused(GrpoError):
    """The residency gate said no."""

    exit_code = EXIT_REFUSED


class StoppedByHealth(GrpoError):
    """Training was stopped because it could not go on soundly."""

    exit_code = EXIT_STOPPED


class Interrupted(GrpoError):
    """The run ended before its last step; the same run id resumes it."""

    exit_code = EXIT_INTERRUPTED


FOR_EXIT_CODE = {kind.exit_code: kind for kind in (WrongInput, Refused, StoppedByHealth, Interrupted)}
