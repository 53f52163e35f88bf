"""The trainer of these contracts is experimental in TRL, which it says at import; the suite knows."""

import os

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
