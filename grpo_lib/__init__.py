"""Async GRPO with LoRA over Gloo, without NCCL, with evidence.

Data flows one way through these modules: settings -> gate -> launch -> worker (rollouts) -> learner -> ledger
-> evidence -> report.
"""

import os

__version__ = "0.1.0"

if "GRPO_OBSERVE_DIR" in os.environ:  # before anything that could open a connection; see `attempts`
    from grpo_lib.attempts import install_from_environment

    install_from_environment()
