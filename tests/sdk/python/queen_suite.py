"""pytest plugin in place of the conftest.py that the published suites come without.

Gives them their one fixture, `client`, and writes a line `passed|failed|skipped NAME` per test to SDK_RESULTS. Their
conftest cleans up in Postgres directly; here each suite has a database of its own, and nothing is left to clean.
"""

import os

import pytest_asyncio

from queen import Queen


@pytest_asyncio.fixture
async def client():
    queen = Queen(os.environ["QUEEN_SERVER_URL"])
    yield queen
    await queen.close()


def pytest_configure(config):
    config.results = {}
    config.pluginmanager.register(_Recorder(config.results), "queen_suite_recorder")


def pytest_unconfigure(config):
    with open(os.environ["SDK_RESULTS"], "w") as out:
        for name, outcome in config.results.items():
            out.write(f"{outcome} {name}\n")


class _Recorder:
    """Keeps the worst outcome of a test's setup, call and teardown."""

    def __init__(self, results):
        self.results = results

    def pytest_runtest_logreport(self, report):
        file, test = report.nodeid.split("/")[-1].split("::", 1)
        name = f"{file.removesuffix('.py')}::{test}"
        if report.outcome != "passed" or report.when == "call":
            if self.results.get(name) != "failed":
                self.results[name] = report.outcome

    def pytest_collectreport(self, report):
        if report.failed:
            self.results[report.nodeid] = "failed"
