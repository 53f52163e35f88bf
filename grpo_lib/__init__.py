"""Async GRPO with LoRA over Gloo, without NCCL, with evidence.

Data flows one way through these modules: settings -> residency (gate) -> jobs (launch) -> worker (rollouts)
-> learner -> ledger -> evidence -> report.
"""

__version__ = "0.1.0"
