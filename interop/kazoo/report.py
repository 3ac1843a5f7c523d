"""A pytest plugin: one line per test for `cargo xtask interop`, and a server of its own for each worker.

The lines go to the file named by INTEROP_REPORT: outcome, test, seconds, and why it failed, separated by tabs.
"""

import os
import socket

import pytest

_worst = {}
_RANK = {"passed": 0, "skipped": 1, "failed": 2}


def pytest_configure(config):
    # kazoo's harness starts servers per process on ports counted from this variable, read at each start.
    worker = getattr(config, "workerinput", {}).get("workerid", "gw0")
    base = int(os.environ["INTEROP_PORTS"])
    each = int(os.environ["INTEROP_PORTS_EACH"])
    os.environ["ZOOKEEPER_PORT_OFFSET"] = str(base + each * int(worker[2:]))


@pytest.fixture(autouse=True)
def default_port_refuses(request, monkeypatch):
    """`test_slow_connect` passes only if 127.0.0.1:2181 refuses connections, but a server may listen there.

    Its connection goes to a port that is bound and does not listen: that one refuses on every machine.
    """
    if request.node.name != "test_slow_connect":
        yield
        return
    with socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))
        connect = socket.create_connection

        def connect_to_refusing(address, *arguments, **named):
            assert address == ("127.0.0.1", 2181), address
            return connect(refusing.getsockname(), *arguments, **named)

        monkeypatch.setattr(socket, "create_connection", connect_to_refusing)
        yield


def pytest_runtest_logreport(report):
    # A test is as good as the worst of its setup, call and teardown.
    outcome, seconds, why = _worst.get(report.nodeid, ("passed", 0.0, ""))
    if _RANK[report.outcome] > _RANK[outcome]:
        outcome = report.outcome
        crash = getattr(report.longrepr, "reprcrash", None)
        why = " ".join(crash.message.split()) if crash else ""
    _worst[report.nodeid] = (outcome, seconds + report.duration, why)
    if report.when == "teardown":
        outcome, seconds, why = _worst.pop(report.nodeid)
        if "INTEROP_REPORT" in os.environ and "PYTEST_XDIST_WORKER" not in os.environ:
            test = report.nodeid.rsplit("/", 1)[-1]
            with open(os.environ["INTEROP_REPORT"], "a", encoding="utf-8") as out:
                out.write(f"{outcome}\t{test}\t{seconds:.2f}\t{why}\n")
