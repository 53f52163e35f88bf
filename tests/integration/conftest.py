"""One complete small run, made once by the production wrapper and looked at by many tests."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator

import psutil
import pytest
from link_capture import LinkCapture
from processes import (
    SMALL,
    CompleteRun,
    command,
    descendants,
    environment,
    named,
    wait_until,
    wrapper_arguments,
)

from grpo_lib.process import SECRET_VARIABLE
from grpo_lib.runfolder import RunFolder

# An address that no other work on this machine uses, so that a capture shows this run alone.
LINK = "127.77.3.1" if sys.platform == "linux" else "127.0.0.1"


@pytest.fixture(scope="session")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompleteRun]:
    root = tmp_path_factory.mktemp("complete")
    user = f"user{secrets.token_hex(6)}"
    home = root / "home" / user
    home.mkdir(parents=True)
    cwd, env = root / "work", environment(home)
    run = RunFolder(cwd / "runs" / "small-run")
    try:
        capture = LinkCapture(LINK)
    except (PermissionError, AttributeError):  # not root, or no packet sockets here
        capture = None
    # The folder of runs is the default one, relative, so that no absolute path is ever given.
    arguments = wrapper_arguments(run_id=run.run_id, bind=LINK, **SMALL)
    with command(cwd, *arguments, env=env) as running:

        def secret() -> str:
            for process in named(descendants(running.process), "grpo_lib.learner"):
                try:
                    return process.environ().get(SECRET_VARIABLE, "")
                except psutil.Error:
                    continue
            return ""

        found = wait_until(secret, running, "a learner process")
        outcome = running.wait()
    yield CompleteRun(run, cwd, env, outcome, user, found, capture.stop() if capture else None)
