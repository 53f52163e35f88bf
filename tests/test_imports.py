"""What the launching process, the gate and the reports import stays free of torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIGHT = (
    "settings",
    "errors",
    "tasks",
    "rewards",
    "residency",
    "adapter_state",
    "bundle",
    "command",
    "custody",
    "memorisation",
    "purge",
    "register",
    "step_records",
    "vault",
    "gate",
    "pii",
    "packs",
    "keys",
    "witness",
    "attestation",
    "documents",
    "form",
    "statements",
    "preflight",
    "prompts",
    "ledger",
    "evidence",
    "report",
    "runfolder",
    "launch",
    "jobs.local",
    "run",
)
HEAVY = ("torch", "transformers", "trl", "peft")


@pytest.mark.parametrize("module", LIGHT)
def test_imports_without_torch(module):
    code = f"import sys, grpo_lib.{module}; print([n for n in {HEAVY!r} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_settings_are_validated_without_torch():
    code = (
        "import sys; from grpo_lib.settings import load; from grpo_lib.errors import WrongInput\n"
        "load({'run_id': 'a'})\n"
        "try: load({'steps': 'x', 'model': '/none'})\n"
        "except WrongInput: pass\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
