"""A shared folder as the files transport needs it: whole files appear, are listed, read once and removed.

`LocalStore` is any folder that the system mounts (disk, NFS, a mounted bucket), where a rename is atomic.
`ObjectStore` is anything that fsspec reaches; an object there appears whole when it was written, so nothing is renamed.
Nobody opens a name that was not listed: a mounted bucket may remember for half a minute that a name was not there.
`LateListing` is the shim that makes a listing lag, as buckets do; tests and the emulator of Jobs use it.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import fsspec


class Store(Protocol):
    """Names are relative, with forward slashes. `OSError` where the folder is full, gone or not ours."""

    def write(self, name: str, data: bytes) -> None:
        """Make a file appear whole, with all folders above it."""

    def names(self, folder: str) -> list[str]:
        """Last parts of the names in a folder, sorted; empty when there is no such folder."""

    def read(self, name: str) -> bytes | None:
        """A file's bytes, or None when it has gone."""

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""


class LocalStore:
    """A mounted folder."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def write(self, name: str, data: bytes) -> None:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            draft.write_bytes(data)
            os.replace(draft, path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self._root / folder) if not name.startswith("."))
        except FileNotFoundError:
            return []

    def read(self, name: str) -> bytes | None:
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)


class ObjectStore:
    """Anything that fsspec reaches, such as `s3://bucket/path`; credentials come from the environment."""

    def __init__(self, url: str) -> None:
        self._fs, self._root = fsspec.url_to_fs(url, skip_instance_cache=True, use_listings_cache=False)

    def write(self, name: str, data: bytes) -> None:
        self._fs.pipe_file(f"{self._root}/{name}", data)

    def names(self, folder: str) -> list[str]:
        try:
            found = self._fs.ls(f"{self._root}/{folder}", detail=False, refresh=True)
        except FileNotFoundError:
            return []
        return sorted(name.rstrip("/").rsplit("/", 1)[-1] for name in found)

    def read(self, name: str) -> bytes | None:
        try:
            return self._fs.cat_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(f"{self._root}/{name}")


class LateListing:
    """Another store, in which a file is listed only `delay_s` seconds after it was first there.

    Files are noticed by this reader's own polling, so the delay counts from the first look after the write.
    """

    def __init__(self, inner: Store, delay_s: float) -> None:
        self._inner, self._delay_s = inner, delay_s
        self._first_seen: dict[str, float] = {}
        self.write, self.read, self.remove = inner.write, inner.read, inner.remove

    def names(self, folder: str) -> list[str]:
        now = time.monotonic()
        listed = []
        for name in self._inner.names(folder):
            first = self._first_seen.setdefault(f"{folder}/{name}", now)
            if now - first >= self._delay_s:
                listed.append(name)
        return listed


def open_store(address: str) -> Store:
    """The store at a path or a URL. A path, and `file://`, is a mounted folder; other schemes go through fsspec."""
    parts = urlsplit(address)
    if parts.scheme in ("", "file"):
        return LocalStore(parts.path if parts.scheme else address)
    return ObjectStore(address)
