"""The fixture ``drydock``: a server for each test."""

import pytest

from . import start


def pytest_configure(config):
    """Registers the marker."""
    config.addinivalue_line("markers", "drydock(*args): options of fake-apiserver for the server of this test")


@pytest.fixture
def drydock(request):
    """A separate server for the test; ``@pytest.mark.drydock("--workers", "all")`` sets its options."""
    marker = request.node.get_closest_marker("drydock")
    with start(*(marker.args if marker else ())) as server:
        yield server
