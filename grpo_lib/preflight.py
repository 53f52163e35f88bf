"""Looks at the machine before anything is started: disk, memory, threads, ports."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import psutil

from grpo_lib.errors import WrongInput, isolate
from grpo_lib.settings import RunSettings
from grpo_lib.transport.listening import listen

# Measured on this suite's processes with the teaching model: a worker 0.5 GiB, a learner 0.7 GiB resident.
_WORKER_GIB = 0.5
_LEARNER_GIB = 0.7
_DISK_GIB = 0.5
_GIB = 1 << 30


def check(settings: RunSettings) -> socket.socket:
    """Check that the run fits this machine; returns the socket that the learner will listen on.

    It listens already: a port that is only found free may be taken by another launch while the learner loads.

    Raises:
        WrongInput: lists everything that does not fit, in both languages.
    """
    faults: list[tuple[str, str]] = []
    nearest = next(
        path
        for path in [Path(settings.runs_dir).absolute(), *Path(settings.runs_dir).absolute().parents]
        if path.exists()
    )
    if not nearest.is_dir():
        faults.append(
            (
                f"runs_dir={isolate(settings.runs_dir)}: {isolate(nearest.name)} ملف وليس مجلدًا. اختر مجلدًا آخر.",
                f"runs_dir={settings.runs_dir}: {nearest.name} is a file, not a folder. Choose another folder.",
            )
        )
    free = shutil.disk_usage(nearest).free / _GIB
    if free < _DISK_GIB:
        faults.append(
            (
                f"المساحة الحرة {isolate(f'{free:.1f} GiB')} والمطلوب {isolate(f'{_DISK_GIB} GiB')}. أفرغ مساحة أو غيّر runs_dir.",
                f"{free:.1f} GiB of disk is free, {_DISK_GIB} GiB is needed. Free some, or change runs_dir.",
            )
        )
    need = _LEARNER_GIB + settings.workers * _WORKER_GIB
    available = psutil.virtual_memory().available / _GIB
    if available < need:
        faults.append(
            (
                f"الذاكرة المتاحة {isolate(f'{available:.1f} GiB')} والمطلوب نحو {isolate(f'{need:.1f} GiB')}. أغلق برامج أو قلّل workers.",
                f"{available:.1f} GiB of memory is available, about {need:.1f} GiB is needed. Close programs, or lower workers.",
            )
        )
    cores = os.cpu_count() or 1
    for name in ("learner_threads", "worker_threads"):
        if getattr(settings, name) > cores:
            faults.append(
                (
                    f"{isolate(f'{name}={getattr(settings, name)}')}: في هذا الجهاز {isolate(cores)} من الأنوية.",
                    f"{name}={getattr(settings, name)}: this machine has {cores} cores.",
                )
            )
    listener = None
    try:
        listener = listen(settings.bind, range(settings.port_first, settings.port_last + 1))
    except WrongInput as error:
        faults.append((error.ar, error.en))
    if faults:
        if listener is not None:
            listener.close()
        raise WrongInput(
            ar="لا يصلح هذا الجهاز لهذا التشغيل:\n" + "\n".join(f"  • {ar}" for ar, _ in faults),
            en="The run does not fit this machine:\n" + "\n".join(f"  • {en}" for _, en in faults),
        )
    return listener
