"""Which machines the processes of a run spoke to, or tried to: the observed half of "declared beside observed".

Two sources, because neither sees everything: the audit hook of `attempts` sees each attempt of Python code, even one
that a firewall stops; samples of the operating system's own tables (psutil) see the connections of every program of
the process tree, in whatever language, that last until the next sample. Addresses alone are kept.

`CANNOT_SEE` is part of the result: an empty list of endpoints proves nothing about what is on it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from grpo_lib import attempts
from grpo_lib.attempts import OBSERVE_VARIABLE, OWN_NAME, EndpointLog, install, port_class, role_of
from grpo_lib.ledger import Ledger
from grpo_lib.places import address_class
from grpo_lib.runfolder import RunFolder, file_sha256, read_lines, write_json

__all__ = ["CANNOT_SEE", "Observer", "install", "observed", "summarise"]

SCHEMA = "grpo-lib/network/1"
EVERY_S = 0.25
# Sampling may take this part of one core at most; on a machine with very many connections it becomes rarer.
_MOST_LOAD = 0.05

# What neither source sees. Each has its sentence in the wording, as `unseen_<name>`.
CANNOT_SEE = (
    "short",  # a connection of a program that is not Python, opened and closed between two samples
    "resolver",  # name queries of the C library, and of a resolver service that answers for it
    "other_users",  # processes of other users, root's among them, which this user may not look into
    "namespaces",  # processes in a network namespace of their own (containers)
    "helpers",  # services of this machine that pass on what reaches them by a local socket: proxies, agents, daemons
    "kernel",  # the kernel's own traffic (network file systems), a hypervisor, the network card
    "other_machines",  # what a worker's machine, or a router, does with the bytes
    "before_after",  # what happened before the launch, in a notebook before its first import, and after this record
)


def classify(host: str) -> tuple[str, str]:
    """(address as it is shown, `loopback`, `private` or `public`) of what a socket call was given."""
    if host == OWN_NAME:
        return host, "private"  # a name server may have been asked for it
    if host in ("", "localhost"):
        return "localhost", "loopback"
    if host == "<broadcast>":  # Python's own word for it
        host = "255.255.255.255"
    try:
        # A zone (`fe80::1%eth0`) names a network card of this machine.
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host, address_class(host)
    # Gloo's sockets are IPv6 with an IPv4 address inside.
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_unspecified:  # to connect to "any" is to connect to oneself
        return str(address), "loopback"
    return str(address), address_class(str(address))


class Observer:
    """Samples the connections of a process tree, and has its Python processes note their attempts.

    Args:
        run: files appear in its `network` folder.
        pid: root of the tree; default: the production wrapper if this process descends from it, else this process.
        every_s: seconds between samples.
    """

    def __init__(self, run: RunFolder, pid: int | None = None, every_s: float = EVERY_S):
        self.folder = folder_of(run)
        self._every_s = every_s
        self._root = psutil.Process(pid) if pid else _root()
        self._log = EndpointLog(self.folder, f"psutil-{os.getpid()}", "psutil")
        self._known: dict[psutil.Process, str] = {}
        self._unreadable: set[int] = set()
        self._open: set[tuple[Any, ...]] = set()
        self._samples, self._longest = 0, 0.0
        self._begun = self._last = time.monotonic()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="observer", daemon=True)

    def start(self) -> None:
        """Begin; children that this process starts from now on note their attempts too."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._outer = os.environ.get(OBSERVE_VARIABLE)
        os.environ[OBSERVE_VARIABLE] = str(self.folder)
        install(self.folder)
        self._thread.start()

    def close(self) -> None:
        """Take the last sample and write everything."""
        self._end.set()
        self._thread.join()
        # Long after the last sample if the thread could not go on; the result must not look complete then.
        longest = max(self._longest, time.monotonic() - self._last)
        attempts.flush()
        if self._outer is None:
            os.environ.pop(OBSERVE_VARIABLE, None)
            attempts.stop()
        else:
            os.environ[OBSERVE_VARIABLE] = self._outer
        self._log.write(
            samples=self._samples,
            seconds=round(self._last - self._begun, 6),
            longest_gap_s=round(longest, 6),
            unreadable=len(self._unreadable),
        )

    def _sample(self) -> None:
        written = self._begun = self._last = time.monotonic()
        while True:
            ending = self._end.is_set()
            busy = time.thread_time()
            new = self._look()
            busy = time.thread_time() - busy
            now = time.monotonic()
            self._samples += 1
            self._longest, self._last = max(self._longest, now - self._last), now
            if ending:
                return
            if new or now - written >= 1.0:
                with contextlib.suppress(OSError):  # a full disk must not end what is observed
                    self._log.write()
                written = now
            self._end.wait(max(self._every_s, busy / _MOST_LOAD))

    def _look(self) -> bool:
        """Take one sample; True when it holds an endpoint that was not seen before."""
        new, found, when = False, set(), time.time()
        for process, one in self._connections():
            if not one.raddr:
                continue
            # Until the other side answers, it is an attempt.
            call = "connect" if one.status == psutil.CONN_SYN_SENT else "connection"
            key = (call, one.type, one.laddr, one.raddr)
            if key not in self._open and key not in found:
                new |= self._log.add(self._role(process), call, one.raddr.ip, one.raddr.port, when)
            found.add(key)
        self._open = found
        return new

    def _connections(self) -> Iterator[tuple[psutil.Process, Any]]:
        appeared = self._refresh()
        # Reading the kernel's TCP tables costs milliseconds however few connections there are: once for all processes
        # where the system allows it. A new process is asked by itself, since the table for all names one owner of a
        # socket that several have, and it may have inherited one.
        together = psutil.LINUX
        for process in appeared if together else list(self._known):
            try:
                yield from ((process, one) for one in process.net_connections(kind="inet"))
            except psutil.NoSuchProcess:
                continue
            except (psutil.AccessDenied, OSError):
                self._unreadable.add(process.pid)
        if together:
            of_pid = {process.pid: process for process in self._known}
            for one in psutil.net_connections(kind="inet"):
                if one.pid in of_pid:
                    yield of_pid[one.pid], one

    def _refresh(self) -> list[psutil.Process]:
        """Bring the watched processes up to date; those that are new.

        One that was in the tree stays watched when its parent is gone and it is no longer in it.
        """
        try:
            tree = [self._root, *self._root.children(recursive=True)]
        except psutil.Error:
            tree = []
        for process in self._known.keys() - set(tree):
            if not process.is_running():
                del self._known[process]
        appeared = []
        for process in tree:
            if process not in self._known:
                self._known[process] = "unknown"
                appeared.append(process)
        return appeared

    def _role(self, process: psutil.Process) -> str:
        # Asked when it matters: right after the fork a child still has its parent's command line, at the end none.
        with contextlib.suppress(psutil.Error):
            self._known[process] = role_of(process.cmdline())
        return self._known[process]


def _root() -> psutil.Process:
    here = psutil.Process()
    with contextlib.suppress(psutil.Error):
        for process in reversed(here.parents()):
            if role_of(process.cmdline()) == "run":
                return process
    return here


def folder_of(run: RunFolder) -> Path:
    """Where the processes of a run note what they see."""
    return run.root / "network"


def summarise(folder: Path) -> dict[str, Any]:
    """What all files of a run's `network` folder say together, over all its launches."""
    endpoints: dict[tuple[str, ...], dict[str, Any]] = {}
    reached: set[tuple[str, str]] = set()
    sampling = {"samples": 0, "seconds": 0.0, "longest_gap_s": 0.0, "unreadable": 0}
    damaged = 0
    for row in (row for path in sorted(folder.glob("*.jsonl")) for row in read_lines(path)):
        try:
            if "samples" in row:
                longest = max(sampling["longest_gap_s"], row["longest_gap_s"])
                sampling = {name: value + row[name] for name, value in sampling.items()}
                sampling["longest_gap_s"] = longest
            else:
                _add(endpoints, row)
                if row["call"] == "connection":
                    reached.add((classify(row["address"])[0], port_class(row["port"])))
        except (KeyError, TypeError, ValueError, AttributeError):
            damaged += 1  # the processes write these files, and a run must not end because one wrote rubbish
    rows = [
        {**one, "attempted_only": (one["address"], one["port_class"]) not in reached}
        for _, one in sorted(endpoints.items())
    ]
    samples = sampling["samples"]
    return {
        "schema": SCHEMA,
        "endpoints": rows,
        "beyond_loopback": sum(one["address_class"] != "loopback" for one in rows),
        "sampled_every_s": round(sampling["seconds"] / samples, 3) if samples else None,
        "longest_gap_s": round(sampling["longest_gap_s"], 3),
        "samples": samples,
        "unreadable_processes": sampling["unreadable"],
        "damaged_lines": damaged,
        "cannot_see": list(CANNOT_SEE),
    }


def _add(endpoints: dict[tuple[str, ...], dict[str, Any]], row: dict[str, Any]) -> None:
    """Merge one line: calls, ports of one class and processes of one kind are one endpoint."""
    address, kind = classify(row["address"])
    about = {
        "address_class": kind,
        "address": address,
        "port_class": port_class(row["port"]),
        "source": str(row["source"]),
        "process": str(row["process"]),
    }
    key = tuple(about.values())
    seen = [row, *([endpoints[key]] if key in endpoints else [])]
    endpoints[key] = {
        **about,
        "first": min(str(one["first"]) for one in seen),
        "last": max(str(one["last"]) for one in seen),
        "count": sum(int(one["count"]) for one in seen),
    }


@contextlib.contextmanager
def observed(run: RunFolder, ledger: Ledger) -> Iterator[None]:
    """Observe what the block does, then write `network.json` and its digest into the ledger, however the block ended."""
    observer = Observer(run)
    observer.start()
    try:
        yield
    finally:
        observer.close()
        result = summarise(observer.folder)
        write_json(run.network, result)
        ledger.append(
            "network_observed",
            network_sha256=file_sha256(run.network),
            beyond_loopback=result["beyond_loopback"],
        )
