"""What a real worker process and a real learner endpoint say to each other, and who can read it.

The worker is `python -m grpo_lib.worker`; the learner's end is in this process, without a trainer. All pieces that cross
the process group and all messages of the handshake are recorded where they enter and leave Gloo; where this user may
capture packets, those are searched too.
"""

from __future__ import annotations

import json
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from link_capture import LinkCapture
from peft import get_peft_model
from processes import ROOT, SMALL, command, environment

from grpo_lib.policy import (
    AdapterSnapshot,
    base_sha256,
    decode,
    encode_prompt,
    load_base,
    lora_config,
    snapshot,
)
from grpo_lib.process import SECRET_VARIABLE
from grpo_lib.rollouts import RolloutBatch
from grpo_lib.settings import load
from grpo_lib.tasks import load_task
from grpo_lib.transport import Arrived, Joined, Left, gloo
from grpo_lib.transport.gloo import GlooLearner
from grpo_lib.transport.gloo_pair import GlooWire

ADDRESS = "127.77.3.2"
PROMPTS = [3, 1, 4, 15]
# Shorter runs of token ids than this may meet by chance in megabytes of sealed bytes.
TOKENS = 6


@dataclass
class Exchange:
    """One policy and one lease out, one batch back, and everything that was seen of it on the way."""

    model: torch.nn.Module  # the learner's, unmerged
    adapter: AdapterSnapshot
    batch: RolloutBatch
    settings: dict
    secret: str
    pieces: bytes  # what Gloo was handed and handed over, and the handshake
    packets: bytes | None
    log: str


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    torch.set_num_threads(1)
    settings = load(SMALL | {"run_id": "wire-run"})
    base, _ = load_base("teaching")
    digest = base_sha256(base)
    torch.manual_seed(7)
    model = get_peft_model(base, lora_config(settings)).eval()
    for name, parameter in model.named_parameters():
        if "lora_B" in name:  # zero at first, which would make the policy equal to the base
            torch.nn.init.normal_(parameter, std=0.02)
    adapter = snapshot(model, 1)
    secret = secrets.token_hex(32)
    seen: list[bytes] = []
    try:
        capture = LinkCapture(ADDRESS)
    except (PermissionError, AttributeError):
        capture = None
    host = ADDRESS if capture else "127.0.0.1"
    with pytest.MonkeyPatch.context() as patch:
        _record(patch, seen)
        learner = GlooLearner(
            run_id=settings.run_id,
            secret=secret.encode(),
            bind=host,
            ports=range(29700, 29720),
            heartbeat_s=0.5,
            deadline_s=60.0,
            welcome={"settings": settings.model_dump()},
            admit=lambda worker_id, info: None if info["base_sha256"] == digest else "base_model",
        )
        words = ["grpo_lib.worker", "--run-id", settings.run_id, "--address", learner.address]
        words += ["--worker-id", "worker-0", "--bind", host, "--heartbeat-s", "0.5"]
        env = environment() | {SECRET_VARIABLE: secret, "OMP_NUM_THREADS": "1"}
        with command(tmp_path_factory.mktemp("wire") / "work", *words, env=env) as worker:
            learner.publish(adapter.version, adapter.payload)
            _event(learner, Joined, worker)
            lease = {"lease_id": 0, "prompts": PROMPTS, "min_version": adapter.version}
            assert learner.grant("worker-0", json.dumps(lease).encode())
            batch = RolloutBatch.from_bytes(_event(learner, Arrived, worker).payload)
            ending = threading.Thread(target=learner.finish)
            ending.start()
            _event(learner, Left, worker)
            ending.join()
            outcome = worker.wait(60)
            assert outcome.code == 0, outcome.err
        learner.close()
    packets = b"\n".join(capture.stop()) if capture else None
    log = outcome.out + outcome.err
    yield Exchange(model, adapter, batch, settings.model_dump(), secret, b"\n".join(seen), packets, log)


def _record(patch: pytest.MonkeyPatch, seen: list[bytes]) -> None:
    send, receive = GlooWire.send, GlooWire.receive_into
    check_hello, make_answer = gloo.check_hello, gloo.make_answer

    def recorded_send(self: GlooWire, piece: memoryview, timeout: float) -> None:
        seen.append(bytes(piece))
        send(self, piece, timeout)

    def recorded_receive(self: GlooWire, room: memoryview, timeout: float) -> None:
        receive(self, room, timeout)
        seen.append(bytes(room))

    def recorded_hello(raw: bytes, *given):
        seen.append(bytes(raw))
        return check_hello(raw, *given)

    def recorded_answer(*given):
        made = make_answer(*given)
        seen.append(made[0])
        return made

    patch.setattr(GlooWire, "send", recorded_send)
    patch.setattr(GlooWire, "receive_into", recorded_receive)
    patch.setattr(gloo, "check_hello", recorded_hello)
    patch.setattr(gloo, "make_answer", recorded_answer)


def _event(learner: GlooLearner, kind: type, worker) -> object:
    """The next event, which must be of this kind."""
    for _ in range(1200):
        event = learner.receive(timeout=0.1)
        if event is not None:
            assert isinstance(event, kind), event
            return event
        assert worker.process.is_running(), worker.wait(0)
    raise AssertionError(f"no {kind.__name__} in two minutes")


def contents(exchange: Exchange) -> Iterator[tuple[str, bytes]]:
    """Everything that was said, in each form in which it could lie in plain sight."""
    task = load_task("arithmetic", 0)
    for index in PROMPTS:
        yield "prompt", task.train_example(index).prompt.encode()
        yield "prompt as JSON", json.dumps(task.train_example(index).prompt)[1:-1].encode()
    _, tokenizer = load_base("teaching")
    for sample in exchange.batch.samples():
        ids, mask = sample["input_ids"], sample["completion_mask"].astype(bool)
        text = decode(tokenizer, [ids[mask].tolist()])[0]
        if len(text.encode()) >= 8:
            yield "completion", text.encode()
        for kind in ("<i4", "<i8", "<u2", ">i4"):
            yield f"token ids as {kind}", ids[:TOKENS].astype(kind).tobytes()
            if mask.sum() >= TOKENS:
                yield f"completion ids as {kind}", ids[mask][:TOKENS].astype(kind).tobytes()
        if mask.sum() >= TOKENS:
            yield "log-probabilities", sample["old_log_probs"][mask][:TOKENS].tobytes()
    yield "rewards", exchange.batch.rewards.tobytes()
    for name, tensor in exchange.adapter.tensors().items():
        raw = tensor.numpy().tobytes()
        for start in (0, len(raw) // 2, len(raw) - 32):
            yield name, raw[start : start + 32]
        yield "name of a tensor", name.encode()
    for name in exchange.settings:
        if len(name) > 6:  # "steps" and "seed" are words that chance could write
            yield "name of a setting", f'"{name}"'.encode()
    yield "digest of the base", exchange.batch.header.base_sha256.encode()
    yield "join secret", exchange.secret.encode()
    yield "join secret as bytes", bytes.fromhex(exchange.secret)


def assert_nothing_readable(exchange: Exchange, crossed: bytes) -> None:
    assert b"GRPF" in crossed and b'"worker-0"' in crossed, "frames and handshake were seen"
    assert len(crossed) > len(exchange.adapter.payload), "and so was the policy"
    found = sorted({what for what, raw in contents(exchange) if raw in crossed})
    assert found == []


def test_what_gloo_carries_shows_no_content(exchange: Exchange) -> None:
    assert_nothing_readable(exchange, exchange.pieces)


def test_a_capture_of_the_link_shows_no_content(exchange: Exchange) -> None:
    if exchange.packets is None:
        pytest.skip(
            "this user may not capture packets; the test above sees the same bytes inside the process"
        )
    assert_nothing_readable(exchange, exchange.packets)


def test_the_search_finds_what_is_sent_in_the_clear(exchange: Exchange) -> None:
    """The search itself: over the same link without a seal, it finds every kind of content."""
    plain = exchange.adapter.payload + exchange.batch.to_bytes() + json.dumps(exchange.settings).encode()
    plain += b'"worker-0" GRPF' + b"\0" * len(exchange.adapter.payload)
    found = {what for what, raw in contents(exchange) if raw in plain}
    assert {"token ids as <i4", "completion ids as <i4", "log-probabilities", "rewards"} <= found
    assert {"name of a setting", "name of a tensor", "digest of the base"} <= found
    assert {name for name in exchange.adapter.tensors() if name in found} == set(exchange.adapter.tensors())
    with pytest.raises(AssertionError):
        assert_nothing_readable(exchange, plain)


def test_the_capture_sees_what_is_sent_in_the_clear() -> None:
    address, mark = "127.77.3.3", b"in the clear"
    try:
        capture = LinkCapture(address)
    except (PermissionError, AttributeError):
        pytest.skip("this user may not capture packets")
    with socket.create_server((address, 0)) as server:
        client = socket.create_connection(server.getsockname()[:2], 5)
        taken, _ = server.accept()
        with client, taken:
            client.sendall(mark)
            assert taken.recv(len(mark)) == mark
    assert mark in b"".join(capture.stop())


# ------------------------------------------------------------------------------------- and what was said is right


def test_log_probabilities_of_the_worker_are_those_of_the_learner(exchange: Exchange) -> None:
    """Merged in the worker's process, unmerged here: within 1e-4 per token in float32, at the same version."""
    batch = exchange.batch
    assert batch.header.policy_version == exchange.adapter.version
    assert batch.header.policy_sha256 == exchange.adapter.sha256
    base_only = largest = 0.0
    for sample in batch.samples():
        ids = torch.from_numpy(sample["input_ids"].astype(np.int64))[None]
        mask = torch.from_numpy(sample["completion_mask"][1:].astype(bool))
        old = torch.from_numpy(sample["old_log_probs"][1:].copy())[mask]
        largest = max(largest, _difference(exchange.model, ids, mask, old))
        with exchange.model.disable_adapter():
            base_only = max(base_only, _difference(exchange.model, ids, mask, old))
    assert largest <= 1e-4
    assert base_only > 1e-2, "the adapter makes a difference, so agreement means that it arrived"


def _difference(
    model: Callable[..., object], ids: torch.Tensor, mask: torch.Tensor, old: torch.Tensor
) -> float:
    with torch.no_grad():
        log_probs = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
    chosen = log_probs.gather(-1, ids[0, 1:, None])[:, 0][mask]
    return float((chosen - old).abs().max())


def test_the_batch_is_whole_groups_of_what_was_leased(exchange: Exchange) -> None:
    batch = exchange.batch
    assert batch.header.prompts == tuple(PROMPTS) and batch.group_size == SMALL["num_generations"]
    _, tokenizer = load_base("teaching")
    task = load_task("arithmetic", 0)
    for row, sample in enumerate(batch.samples()):
        prompt = encode_prompt(tokenizer, task.train_example(PROMPTS[row // batch.group_size]).prompt)
        assert sample["input_ids"][: len(prompt)].tolist() == prompt
        assert sample["completion_mask"].tolist() == [0] * len(prompt) + [1] * (
            len(sample["input_ids"]) - len(prompt)
        )
    groups = batch.advantages.reshape(len(PROMPTS), -1)
    np.testing.assert_allclose(groups.sum(axis=1), 0, atol=1e-5)


def test_the_worker_wrote_no_prompt_and_no_path(exchange: Exchange) -> None:
    """Its log is part of the run folder."""
    assert "worker-0: joined run wire-run" in exchange.log
    task = load_task("arithmetic", 0)
    assert not [index for index in PROMPTS if task.train_example(index).prompt in exchange.log]
    assert str(ROOT) not in exchange.log and "site-packages" not in exchange.log
