"""Checkpoints: only what the ledger vouches for is loaded."""

from __future__ import annotations

import json

import pytest

from grpo_lib import checkpoints
from grpo_lib.checkpoints import FEED_STATE, newest_sound, seal
from grpo_lib.ledger import Ledger, read_events
from grpo_lib.runfolder import RunFolder, file_sha256


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path / "run-1")


@pytest.fixture
def ledger(run):
    return Ledger(run.ledger, run.run_id, "learner")


def write(run, step):
    folder = run.checkpoints / f"checkpoint-{step}"
    (folder / "sub").mkdir(parents=True)
    (folder / "adapter_model.safetensors").write_bytes(b"weights %d" % step)
    (folder / "sub" / "optimizer.pt").write_bytes(b"moments %d" % step)
    return folder


def sealed(run, ledger, step):
    folder = write(run, step)
    seal(folder, step, {"next": step, "unconsumed": [step - 1]}, ledger)
    return folder


def newest(run, ledger):
    """As the learner asks: what is passed over is recorded."""
    return newest_sound(
        run, lambda step, reason: ledger.append("checkpoint_refused", step=step, reason=reason)
    )


def refusals(run):
    return [
        (e["data"]["step"], e["data"]["reason"])
        for e in read_events(run.ledger)
        if e["event"] == "checkpoint_refused"
    ]


def test_sealing_stores_the_feed_and_records_every_file(run, ledger):
    folder = sealed(run, ledger, 10)
    (event,) = read_events(run.ledger)
    assert event["event"] == "checkpoint_saved" and event["data"]["step"] == 10
    assert set(event["data"]["files"]) == {"adapter_model.safetensors", "sub/optimizer.pt", FEED_STATE}
    assert all(digest == file_sha256(folder / name) for name, digest in event["data"]["files"].items())
    assert json.loads((folder / FEED_STATE).read_text()) == {"next": 10, "unconsumed": [9]}


def test_without_checkpoints_a_run_starts_from_the_beginning(run, ledger):
    assert newest(run, ledger) is None
    run.checkpoints.mkdir(parents=True)
    assert newest(run, ledger) is None and refusals(run) == []


def test_the_newest_by_step_is_taken(run, ledger):
    for step in (9, 10, 100):
        sealed(run, ledger, step)
    found = newest(run, ledger)
    folder, step, state = found.folder, found.step, found.feed_state()
    assert (folder.name, step, state) == ("checkpoint-100", 100, {"next": 100, "unconsumed": [99]})
    assert refusals(run) == []


def change(folder):
    (folder / "adapter_model.safetensors").write_bytes(b"weights 2O")


def change_state(folder):
    (folder / FEED_STATE).write_text('{"next": 0, "unconsumed": []}')


def remove(folder):
    (folder / "sub" / "optimizer.pt").unlink()


def add(folder):
    (folder / "training_args.bin").write_bytes(b"pickle")


def add_deep(folder):
    (folder / "sub" / "more.bin").write_bytes(b"")


@pytest.mark.parametrize("harm", [change, change_state, remove, add, add_deep])
def test_a_checkpoint_that_differs_is_refused_and_an_older_one_taken(run, ledger, harm):
    sealed(run, ledger, 10)
    harm(sealed(run, ledger, 20))
    assert newest(run, ledger).step == 10
    assert [step for step, _ in refusals(run)] == [20]


def test_a_checkpoint_cut_off_before_it_was_sealed_is_refused(run, ledger):
    sealed(run, ledger, 10)
    write(run, 20)
    assert newest(run, ledger).step == 10
    assert refusals(run) == [(20, "not in the ledger")]


def test_a_seal_cut_off_before_the_ledger_heard_of_it_is_refused(run, ledger, monkeypatch):
    folder = write(run, 20)

    def crash(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(ledger, "append", crash)
    with pytest.raises(KeyboardInterrupt):
        seal(folder, 20, {}, ledger)
    monkeypatch.undo()
    assert newest(run, ledger) is None


def test_the_latest_seal_of_a_step_counts(run, ledger):
    folder = sealed(run, ledger, 10)
    (folder / "adapter_model.safetensors").write_bytes(b"again")
    seal(folder, 10, {"next": 11, "unconsumed": []}, ledger)
    assert newest(run, ledger).feed_state()["next"] == 11


def test_refusing_all_starts_from_the_beginning(run, ledger):
    for step in (10, 20):
        change(sealed(run, ledger, step))
    assert newest(run, ledger) is None
    assert [step for step, _ in refusals(run)] == [20, 10]


def test_trainer_state_is_loaded_without_pickle():
    # The suite leaves loading to transformers; this is what it promises there.
    import inspect

    from transformers import Trainer

    source = inspect.getsource(Trainer._load_optimizer_and_scheduler) + inspect.getsource(
        Trainer._load_rng_state
    )
    assert "torch.load(" in source or "check_torch_load_is_safe" in source
    assert source.count("torch.load(") == source.count("weights_only=True")
    assert "weights_only=True" in checkpoints.__doc__
