"""Keeping processes from asking anybody outside: what is set in their environment, and names without a name server.

Measured in a run on loopback with the teaching model, before this: TRL's telemetry is off by a variable; PEFT asked the
Hub for a configuration file at each adapter it saved; and each TCPStore client asked the name server who 127.0.0.1 is,
because torch prints names in its logs and the C library finds `::ffff:127.0.0.1` in no hosts file.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from grpo_lib.places import address_class
from grpo_lib.settings import TEACHING_MODEL

NAMES_VARIABLE = "GRPO_NAMES_FROM_FILES"

# The second is honoured by many programs (donottrack.sh), the Hub's client among them.
QUIET = {"HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}


def environment(model: str, bind: str) -> dict[str, str]:
    """Variables for every process of a run; they must be there before the Hub's client is imported.

    A model from the Hub needs the Hub and a name server, at least the first time; whoever has it in the cache sets
    `HF_HUB_OFFLINE` themselves. An address beyond loopback may be a name.
    """
    if model != TEACHING_MODEL and not Path(model).exists():
        return dict(QUIET)
    names = {NAMES_VARIABLE: "1"} if address_class(bind) == "loopback" else {}
    return {**QUIET, "HF_HUB_OFFLINE": "1", **names}


def names_from_files() -> bool:
    """Where `GRPO_NAMES_FROM_FILES` is set, let this process look names up in /etc/hosts alone; True when it does so.

    `__nss_configure_lookup` is the GNU C library's own call for it (`nss.h`). Other C libraries do not have it; there the
    name server of the machine may still be asked for the name of 127.0.0.1.
    """
    if os.environ.get(NAMES_VARIABLE) != "1":
        return False
    try:
        configure = ctypes.CDLL(None).__nss_configure_lookup
    except (OSError, AttributeError, TypeError):
        return False
    return configure(b"hosts", b"files") == 0
