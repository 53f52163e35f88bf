"""Runs the tests that ask for `link` once for each transport."""

from collections.abc import Iterator

import pytest
from transport_ends import TRANSPORTS, Link


@pytest.fixture(params=TRANSPORTS)
def link(request) -> Iterator[Link]:
    made = Link(TRANSPORTS[request.param]())
    yield made
    made.close()
