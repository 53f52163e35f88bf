"""The look at the machine: everything that does not fit is said at once, and nothing is written."""

from __future__ import annotations

import os
import shutil
import socket
from types import SimpleNamespace

import pytest

from grpo_lib import preflight
from grpo_lib.errors import WrongInput
from grpo_lib.settings import load


@pytest.fixture
def values(tmp_path):
    return {
        "runs_dir": str(tmp_path / "not" / "yet" / "there"),
        "run_id": "run-1",
        "port_first": 29700,
        "port_last": 29749,
    }


def refused(values) -> WrongInput:
    with pytest.raises(WrongInput) as caught:
        preflight.check(load(values))
    return caught.value


def small(monkeypatch, disk_gib=100.0, memory_gib=100.0):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=disk_gib * 2**30))
    monkeypatch.setattr(
        preflight.psutil, "virtual_memory", lambda: SimpleNamespace(available=memory_gib * 2**30)
    )


def test_a_run_that_fits_gets_a_port_it_can_bind(values, tmp_path, monkeypatch):
    small(monkeypatch)
    with preflight.check(load(values)) as listener:
        port = listener.getsockname()[1]
    assert 29700 <= port <= 29749
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))
    assert list(tmp_path.iterdir()) == []


def test_a_taken_port_is_passed_over(values, monkeypatch):
    small(monkeypatch)
    with preflight.check(load(values)) as taken:  # as a launch that is still loading holds it
        first = taken.getsockname()[1]
        with preflight.check(load(values)) as other:
            assert other.getsockname()[1] > first
        error = refused(values | {"port_first": first, "port_last": first})
    assert str(first) in error.en and str(first) in error.ar and "No port is free" in error.en


def test_everything_that_does_not_fit_is_said_at_once(values, monkeypatch, tmp_path):
    small(monkeypatch, disk_gib=0.1, memory_gib=0.1)
    cores = os.cpu_count() or 1
    error = refused(
        values | {"learner_threads": cores + 1, "worker_threads": cores + 1, "bind": "203.0.113.1"}
    )
    assert error.exit_code == 2
    for text in (error.ar, error.en):
        assert text.count("•") == 5
        for part in ("0.1 GiB", "learner_threads", "worker_threads", "203.0.113.1"):
            assert part in text
    assert list(tmp_path.iterdir()) == []


def test_more_workers_need_more_memory(values, monkeypatch):
    small(monkeypatch, memory_gib=2.0)
    preflight.check(load(values | {"workers": 2}))
    assert "workers" in refused(values | {"workers": 20}).en


def test_as_many_threads_as_cores_are_allowed(values, monkeypatch):
    small(monkeypatch)
    preflight.check(load(values | {"learner_threads": os.cpu_count(), "worker_threads": os.cpu_count()}))


def test_a_runs_folder_that_is_a_file_is_refused(values, monkeypatch, tmp_path):
    small(monkeypatch)
    (tmp_path / "file").write_text("")
    assert "runs_dir" in refused(values | {"runs_dir": str(tmp_path / "file")}).en
