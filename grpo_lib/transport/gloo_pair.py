"""The parts of Gloo that we stand on: a two-member group as a wire, its device, the store's socket.

Measured with torch 2.13:

* A wait that times out closes its pair for good, in both directions, and `is_completed` cannot poll: hence
  `session`. Nothing else closes a pair (`abort` and `shutdown` leave a blocked `recv` blocked), so
  `GlooWire.close` uses this very trap. A `send` that races with the peer's end is not even woken by that: it
  sits out its own deadline (gloo's `Pair::signalException` leaves out what is queued for writing).
* TCPStore listens on every interface unless it is handed a listening socket, so we bind that socket
  ourselves.
* More bytes than `recv` offered abort the process, so every offer is a whole piece and every piece fits. A
  worker that knows the secret and breaks this on purpose can still end the learner; the run then resumes.
* Gloo listens on the address of its device. Its data ports are the kernel's choice
  (`net.ipv4.ip_local_port_range`): the wheel offers no way to set them. Either end may be the one that
  connects, so a firewall must let both in.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import threading
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from grpo_lib.transport.session import WireError

# In the thread whose wait timed out, and in the other one, whose wait that broke.
_TIME_OUTS = ("Timed out waiting", "Application timeout caused pair closure")


class GlooWire:
    """A two-member process group as a `session.Wire`. The peer is the member of the other rank."""

    def __init__(self, group: dist.ProcessGroupGloo) -> None:
        self._group = group
        self._peer = 1 - group.rank()
        self._closed = threading.Event()

    def send(self, piece: memoryview, timeout: float) -> None:
        tensor = torch.frombuffer(piece, dtype=torch.uint8)
        self._do(lambda: self._group.send([tensor], self._peer, 0), timeout)

    def receive_into(self, room: memoryview, timeout: float) -> None:
        tensor = torch.frombuffer(room, dtype=torch.uint8)
        self._do(lambda: self._group.recv([tensor], self._peer, 0), timeout)

    def _do(self, start: Callable[[], dist.Work], timeout: float) -> None:
        try:
            start().wait(timedelta(seconds=timeout))
        except RuntimeError as error:  # the only type that Gloo raises; its text is the only detail
            timed_out = any(text in str(error) for text in _TIME_OUTS)
            raise WireError("silent" if timed_out else "connection closed") from error

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        nothing = torch.empty(1, dtype=torch.uint8)
        with contextlib.suppress(
            RuntimeError
        ):  # nobody sends under tag 1: this times out and closes the pair
            self._group.recv([nothing], self._peer, 1).wait(timedelta(milliseconds=1))


class SealedStore(dist.Store):
    """What Gloo reads and writes while two members meet, sealed with a key that only they have.

    Gloo trusts what it finds there, addresses and lengths; a stranger's bytes under its keys crash the
    process.
    """

    def __init__(self, inner: dist.Store, key: bytes, prefix: str) -> None:
        super().__init__()
        self._inner, self._aead, self._prefix = inner, AESGCM(key), prefix

    def set(self, key: str, value: bytes) -> None:
        nonce = os.urandom(12)  # a handful of values per key: random nonces cannot meet
        self._inner.set(self._prefix + key, nonce + self._aead.encrypt(nonce, value, key.encode()))

    def get(self, key: str) -> bytes:
        raw = self._inner.get(self._prefix + key)
        try:
            return self._aead.decrypt(raw[:12], raw[12:], key.encode())
        except (InvalidTag, ValueError):
            raise RuntimeError("a stranger wrote into the rendezvous") from None

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        self._inner.wait([self._prefix + key for key in keys], timeout)


def make_device(host: str) -> dist.ProcessGroupGloo.Device:
    return dist.ProcessGroupGloo.create_device(hostname=host, lazy_init=False)


def open_pair(
    store: dist.Store, rank: int, device: dist.ProcessGroupGloo.Device, timeout: float
) -> dist.ProcessGroupGloo:
    """Both members call this; it returns once they are connected. Raises RuntimeError on time-out."""
    options = dist.ProcessGroupGloo._Options()
    options._devices = [device]
    options._timeout = timedelta(seconds=timeout)
    options._threads = 2  # one operation may be under way in each direction
    return dist.ProcessGroupGloo(store, rank, 2, options)


def store_client(host: str, port: int, timeout: float) -> dist.TCPStore:
    return dist.TCPStore(host, port, None, False, timedelta(seconds=timeout), wait_for_workers=False)


def address_class(*hosts: str) -> str:
    """The widest of: loopback, private, public. A name that is not a numeric address counts as public."""
    order = ["loopback", "private", "public"]

    def one(host: str) -> str:
        try:
            ip = ipaddress.ip_address(host)
        except ValueError:
            return "public"
        return "loopback" if ip.is_loopback else "public" if ip.is_global else "private"

    return max((one(host) for host in hosts), key=order.index)
