"""What every process of a run does at its edges: threads, lifeline, signals, exit code."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable

from grpo_lib import attempts
from grpo_lib.errors import EXIT_COMPLETE, EXIT_INTERRUPTED, GrpoError, WrongInput

SECRET_VARIABLE = "GRPO_JOIN_SECRET"
NO_LONGER_NEEDED = b"end"


def join_secret() -> bytes:
    """The run's join secret, from the environment.

    Raises:
        WrongInput: it is missing or too short to be one.
    """
    secret = os.environ.get(SECRET_VARIABLE, "")
    if len(secret) < 32:
        raise WrongInput(
            ar=f"متغير البيئة {SECRET_VARIABLE} مفقود أو أقصر من 32 حرفًا؛ خذه ممن أطلق التشغيل.",
            en=f"The environment variable {SECRET_VARIABLE} is missing or shorter than 32 characters; "
            "get it from whoever launched the run.",
        )
    return secret.encode()


def hold_lifeline(grace_s: float = 0.0) -> None:
    """End this process when its standard input closes, that is, when the process that started it is gone.

    A launcher that is killed cannot clean up; this is how it leaves no orphan behind. A launcher that writes `end` says
    that this process is no longer needed, which is no fault.

    Args:
        grace_s: seconds between asking (SIGTERM to itself) and ending it.
    """

    def watch() -> None:
        # Unbuffered: a thread blocked in a buffered read holds a lock that the interpreter needs to exit.
        while said := os.read(0, 1024):
            if said.startswith(NO_LONGER_NEEDED):
                attempts.flush()
                os._exit(EXIT_COMPLETE)
        print("launcher is gone: ending", file=sys.stderr, flush=True)
        if grace_s:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(grace_s)
        attempts.flush()
        os._exit(EXIT_INTERRUPTED)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


class StopRequest:
    """Set by SIGTERM or SIGINT; work loops look at it and stop where it is safe to."""

    def __init__(self) -> None:
        self._event = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._event.set())

    def __bool__(self) -> bool:
        return self._event.is_set()


def exit_with(main: Callable[[], None]) -> None:
    """Run `main` and end the process with the exit code of its outcome.

    `os._exit` because threads blocked inside a collective would otherwise keep the interpreter from ending.
    """
    code = 0
    try:
        main()
    except GrpoError as error:
        print(f"{error.ar}\n{error.en}", file=sys.stderr)
        code = error.exit_code
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    attempts.flush()
    os._exit(code)
