"""Where this Python process tries to connect to: address, first and last time, how often; never what is sent.

CPython raises an audit event (PEP 578) before each socket call, whether or not the call then succeeds, so an attempt
that a firewall stops is seen too. `install` adds one hook that notes these events; a thread writes what is new at once
and counts once a second. Standard library only: it is in place before torch and the Hub's client are imported.

It is reached through `GRPO_OBSERVE_DIR`, which children inherit, and the first lines of `grpo_lib/__init__`. A `.pth`
file would run in every Python of the environment, and `sitecustomize` would hide the one that the distribution or the
user has. The price: what a notebook kernel does before it first imports grpo_lib is left to `observe`.

A hook sees calls that go through Python's `socket` module alone. C and C++ code (Gloo, the libc resolver) and other
programs are for `observe`.
"""

from __future__ import annotations

import atexit
import contextlib
import ipaddress
import json
import os
import queue
import re
import socket
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

OBSERVE_VARIABLE = "GRPO_OBSERVE_DIR"
OWN_NAME = "own host name"
MORE = "further endpoints"
_FLUSH_S = 1.0
# Beyond this many endpoints a process has one line for all the others: a port scan must not fill the disk.
_MOST = 4096

_SERVICES = {0: "none", 22: "ssh", 53: "dns", 80: "http", 443: "https", 853: "dns"}
_CALLS = {
    "socket.connect": "connect",
    "socket.sendto": "send",
    "socket.sendmsg": "send",
    "socket.getaddrinfo": "lookup",
    "socket.gethostbyname": "lookup",
    "socket.gethostbyaddr": "reverse lookup",
    "socket.getnameinfo": "reverse lookup",
}
# These never leave the machine's kernel; what listens at the other end of a Unix socket may (see `observe`).
_WITHIN = {getattr(socket, name) for name in ("AF_UNIX", "AF_NETLINK", "AF_ALG") if hasattr(socket, name)}
_INTERNET = (socket.AF_INET, socket.AF_INET6)
# (call, socket family, address, seconds since the epoch)
_Noted = tuple[str, Any, Any, float]


def role_of(words: list[str]) -> str:
    """What a process is, from its command line: `learner`, `worker`, `run`, `kernel`, else the program's name."""
    module = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
    if module.startswith("ipykernel"):
        return "kernel"
    program = Path(words[0] if words else "").name
    if not module and program.startswith("python") and words[1:2] and not words[1].startswith("-"):
        program = Path(words[1]).name.removesuffix(".py")
    return re.sub(r"[^A-Za-z0-9._-]", "_", module.rpartition(".")[2] or program)[:40] or "unknown"


class EndpointLog:
    """The endpoints of one source as JSON lines, written whole and renamed: as many lines as endpoints.

    Args:
        folder: is made when there is something to write, and only inside a run folder that exists by then: a launch
            that is refused leaves nothing behind.
        name: of the file, without `.jsonl`; one that is taken, by an earlier process with this number, is kept.
        source: `audit` or `psutil`, noted in each line.
    """

    def __init__(self, folder: Path, name: str, source: str):
        self.folder = folder
        self._name, self._source = name, source
        self._path: Path | None = None
        self._rows: dict[tuple[str, ...], dict[str, Any]] = {}
        self._changed = False

    def add(self, process: str, call: str, address: str, port: int, when: float) -> bool:
        """Count one attempt or connection; True when this endpoint is new. Ports of one class count as one."""
        key = (process, call, address, port_class(port))
        if key not in self._rows and len(self._rows) >= _MOST:
            call, address, port = "connect", MORE, 0
            key = (process, call, address, port_class(port))
        new = key not in self._rows
        if new:
            about = {
                "source": self._source,
                "process": process,
                "call": call,
                "address": address,
                "port": port,
            }
            self._rows[key] = {**about, "first": iso(when), "count": 0}
        self._rows[key] |= {"last": iso(when), "count": self._rows[key]["count"] + 1}
        self._changed = True
        return new

    def write(self, **closing: Any) -> None:
        """Bring the file up to date; `closing` becomes a last line of its own.

        Raises:
            OSError: the folder is not there, or the disk is full; what was counted is kept for the next time.
        """
        if not (self._changed or closing):
            return
        if self._path is None:
            self.folder.mkdir(exist_ok=True)  # not its parents
            self._path = self._free()
        rows = [*self._rows.values(), *([{"source": self._source, **closing}] if closing else [])]
        staged = self._path.with_suffix(".part")
        staged.write_text(
            "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
        )
        os.replace(staged, self._path)
        self._changed = False

    def _free(self) -> Path:
        path, again = self.folder / f"{self._name}.jsonl", 1
        while path.exists():
            again += 1
            path = self.folder / f"{self._name}-{again}.jsonl"
        return path


def port_class(port: int) -> str:
    """`dns`, `http`, `https`, `ssh`, or the range of RFC 6335, section 6: `system`, `user`, `dynamic`."""
    if port in _SERVICES:
        return _SERVICES[port]
    return "system" if port < 1024 else "user" if port < 49152 else "dynamic"


def iso(when: float) -> str:
    """Seconds since the epoch as ISO 8601 with milliseconds, UTC."""
    return datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Recorder:
    """Takes what the hook notes and keeps the file up to date, in a thread of its own."""

    def __init__(self, folder: Path, role: str):
        self.folder, self.role = folder, role
        # A signal handler that connects may enter `put` again; a lock in the hook would then never be free.
        self.noted: queue.SimpleQueue[_Noted | threading.Event | None] = queue.SimpleQueue()
        self._log = EndpointLog(folder, f"{role}-{os.getpid()}", "audit")
        threading.Thread(target=self._keep, name="observe", daemon=True).start()

    def _keep(self) -> None:
        due: float | None = None  # when counts are to be written
        while True:
            asked = None
            try:
                noted = self.noted.get(timeout=None if due is None else max(0.0, due - time.monotonic()))
                if noted is None:
                    return
                if isinstance(noted, threading.Event):
                    asked, now = noted, True
                else:
                    now = self._add(*noted)
            except queue.Empty:
                now = True
            if now or (due is not None and time.monotonic() >= due):
                # A full disk or a run folder that was moved must not end what is observed.
                with contextlib.suppress(OSError):
                    self._log.write()
                due = None
            elif due is None:
                due = time.monotonic() + _FLUSH_S
            if asked:
                asked.set()

    def _add(self, call: str, family: Any, address: Any, when: float) -> bool:
        try:
            found = endpoint(call, family, address)
        except (TypeError, ValueError):
            return False  # no address at all: the call itself fails
        return found is not None and self._log.add(self.role, call, *found, when)

    def flush(self) -> None:
        # Behind everything that was noted before; the thread alone touches the table.
        done = threading.Event()
        self.noted.put(done)
        done.wait(_FLUSH_S)

    def end(self) -> None:
        self.flush()
        self.noted.put(None)


def endpoint(call: str, family: Any, address: Any) -> tuple[str, int] | None:
    """(address, port) as noted by the hook; None for what reaches nobody, such as looking up a numeric address."""
    if family in _WITHIN or address is None:
        return None
    if family is not None and family not in _INTERNET:
        return str(getattr(family, "name", family)), 0  # AF_VSOCK reaches the hypervisor, Bluetooth the room
    host, port = address[:2] if isinstance(address, tuple) else (address, 0)
    if not isinstance(host, str | bytes | bytearray):
        return None  # None stands for this machine; anything else is no address
    host = host if isinstance(host, str) else host.decode("ascii", "replace")
    port = port if isinstance(port, int) else 0
    if call == "lookup":
        if not host or _is_numeric(host):
            return None
        # The name of a machine may tell whose it is.
        return (OWN_NAME if host == socket.gethostname() else host), port
    return host, port


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


_recorder: _Recorder | None = None
_hooked = False


def _hook(event: str, args: tuple[Any, ...]) -> None:
    # Called for every audit event of the process (imports, files): one look into a dictionary for nearly all of them.
    call = _CALLS.get(event)
    if call is None or _recorder is None:
        return
    # An exception here would forbid the call that is only watched.
    with contextlib.suppress(Exception):
        if call in ("connect", "send"):
            _recorder.noted.put((call, args[0].family, args[1], time.time()))
        else:
            address = args[0] if event != "socket.getaddrinfo" else args[:2]
            _recorder.noted.put((call, None, address, time.time()))


def install(folder: Path | str, role: str = "") -> None:
    """Note this process's attempts in `folder/<role>-<pid>.jsonl` from now on. A second call moves to its folder.

    Args:
        role: default: from the command line.
    """
    global _recorder, _hooked
    folder = Path(folder).absolute()
    if _recorder is not None:
        if _recorder.folder == folder:
            return
        _recorder.end()
    _recorder = _Recorder(folder, role or role_of(sys.orig_argv))
    if not _hooked:
        _hooked = True  # a hook cannot be taken out again
        sys.addaudithook(_hook)
        atexit.register(flush)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    """A forked child has the hook but not the thread, and may have a lock that nobody will release."""
    global _recorder
    if _recorder is not None:
        _recorder = _Recorder(_recorder.folder, _recorder.role)


def install_from_environment() -> None:
    """`install` where `GRPO_OBSERVE_DIR` says so; children inherit it."""
    folder = os.environ.get(OBSERVE_VARIABLE)
    if folder:
        install(folder)


def flush() -> None:
    """Write what was noted. For processes that end by `os._exit`, which runs no exit handler."""
    if _recorder is not None:
        _recorder.flush()


def stop() -> None:
    """Write what was noted, and note no more."""
    global _recorder
    if _recorder is not None:
        _recorder.end()
    _recorder = None
