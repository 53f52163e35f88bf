"""Worker processes for the tests: each sends leases back, joins again after a loss, ends with the run.

Importing torch takes seconds, so one interpreter imports it and forks the workers before anything else
happens. It prints their process ids, then, when all are gone, how each of them ended.
"""

import json
import os
import sys

from grpo_lib.transport import EndOfRun, LearnerLost
from grpo_lib.transport.gloo import GlooWorker


def serve(worker_id: str, given: dict) -> list[str]:
    """Work until the end of the run; returns the reasons for which the learner was lost meanwhile."""
    worker = GlooWorker(worker_id=worker_id, **given)
    lost = []
    try:
        while True:
            worker.join({})
            try:
                while True:
                    lease = worker.next_lease(1.0)
                    if lease is not None:
                        worker.submit(lease)
            except LearnerLost as error:
                lost.append(error.reason)
    except EndOfRun:
        worker.close()
        return lost


def main() -> None:
    worker_ids, given = json.loads(sys.argv[1])
    given["secret"] = bytes.fromhex(given["secret"])
    children = {}
    for worker_id in worker_ids:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            lost = serve(worker_id, given)
            os.write(write, json.dumps(lost).encode())
            os._exit(0)
        os.close(write)
        children[worker_id] = (pid, read)
    print(json.dumps({worker_id: pid for worker_id, (pid, _) in children.items()}), flush=True)
    ends = {}
    for worker_id, (pid, read) in children.items():
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        ends[worker_id] = [code, json.loads(os.read(read, 1000) or "null")]
    print(json.dumps(ends), flush=True)


if __name__ == "__main__":
    main()
