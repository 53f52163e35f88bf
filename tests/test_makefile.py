"""The commands that the project promises, looked at without running them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TARGETS = ("help", "run", "test", "lab", "bench", "lint", "purge", "pdf-libs")

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(*arguments: str) -> str:
    # Not as a part of the `make test` that may be running this: its flags would change what is printed.
    env = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    }
    done = subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_make
def test_help_lists_every_target_in_both_languages() -> None:
    lines = {line.split()[0]: line for line in make("help").splitlines()}
    assert set(lines) == set(TARGETS)
    for target, line in lines.items():
        assert re.search("[\u0621-\u064a]", line) and re.search("[a-z]{3}", line.removeprefix(target)), line
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert set(phony[1].split()) == set(TARGETS)


@needs_make
def test_help_is_what_make_does_when_asked_for_nothing() -> None:
    assert make() == make("help")


@needs_make
def test_run_passes_the_run_id_and_other_arguments_on() -> None:
    planned = make("--dry-run", "run", "RUN_ID=some-run", "ARGS=-p steps 20")
    assert "-m grpo_lib.run -p run_id some-run -p steps 20" in planned
    assert "run_id" not in make("--dry-run", "run")


@needs_make
def test_every_target_sets_the_environment_up_first() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(TARGETS) - {"help", "pdf-libs"}:
        assert re.search(rf"^{target}: \$\(READY\)", text, re.M), target
    assert "-c constraints.txt" in text, "versions are those that were tested"
    installs = re.findall(r"^.*\b(?:pip3?|conda|npm) install\b.*$", text, re.M)
    debian = re.findall(r"^.*apt-get.*$", text, re.M)
    assert len(debian) == 1 and "pdf-libs:" in text.split(debian[0])[0].splitlines()[-1]
    assert all("$(BIN)/pip" in line for line in installs), "nothing is installed outside .venv"


def test_continuous_integration_is_make_test() -> None:
    path = ROOT / ".ci" / "run"
    assert os.access(path, os.X_OK)
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert lines[-1].strip() == "make test"
    assert "set -euo pipefail" in lines, "a failed test must fail it"
