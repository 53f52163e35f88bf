"""Start JupyterLab, ask it for all that its page asks for, run a cell, stop it.

    python lab_visit.py RESULT JUPYTERLAB-ARGUMENTS...

RESULT becomes JSON: the HTTP status of each request, and what the cell printed under `cell`.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from jupyter_client import BlockingKernelClient

# What the page asks its server for when it opens, and when the panels for extensions and language servers do.
REQUESTS = (
    "/lab",
    "/lab/api/settings",
    "/lab/api/translations",
    "/lab/api/news",
    "/lab/api/update",
    "/lab/api/extensions?refresh=0",
    "/lab/api/extensions?query=&page=1&per_page=30&refresh=1",
    "/lab/api/listings/@jupyterlab/extensionmanager-extension/listings.json",
    "/lsp/status",
    "/api/kernelspecs",
    "/api/contents",
    "/api/terminals",
)
# What the lessons import first.
CELL = "from grpo_lib import plots, settings, show; print(len(settings.RunSettings.model_fields))"
PATIENCE_S = 60.0


class Lab:
    """One server, reached with its token."""

    def __init__(self, port: int, token: str):
        self._base, self._token = f"http://127.0.0.1:{port}", token

    def ask(self, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        headers = {"Authorization": f"token {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self._base + path, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, b""

    def wait(self, server: subprocess.Popen) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while server.poll() is None and time.monotonic() < deadline:
            try:
                if self.ask("/api")[0] == 200:
                    return
            except OSError:
                time.sleep(0.2)
        raise TimeoutError("JupyterLab did not answer")

    def run_cell(self, code: str) -> str:
        _, kernel = self.ask("/api/kernels", b'{"name": "python3"}')
        file = Path(os.environ["JUPYTER_RUNTIME_DIR"]) / f"kernel-{json.loads(kernel)['id']}.json"
        client = BlockingKernelClient(connection_file=str(file))
        client.load_connection_file()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=PATIENCE_S)
            said: list[str] = []
            client.execute_interactive(
                code, timeout=PATIENCE_S, output_hook=lambda m: said.append(m["content"].get("text", ""))
            )
            return "".join(said).strip()
        finally:
            client.stop_channels()


def main() -> None:
    result, *arguments = sys.argv[1:]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    own = ["--no-browser", f"--ServerApp.port={port}", f"--IdentityProvider.token={token}", "--allow-root"]
    server = subprocess.Popen([sys.executable, "-m", "jupyterlab", *arguments, *own])
    try:
        lab = Lab(port, token)
        lab.wait(server)
        found: dict[str, int | str] = {path: lab.ask(path)[0] for path in REQUESTS}
        found["cell"] = lab.run_cell(CELL)
        lab.ask("/api/shutdown", b"")
        server.wait(PATIENCE_S)
    finally:
        server.kill()
    Path(result).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
