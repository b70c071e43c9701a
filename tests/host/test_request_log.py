"""The line of each request: the fields structlog would write, in order with other lines, and soon."""

import asyncio
import io
import json
import re

import pytest
import structlog

from host import request_log
from host.request_log import REQUEST_ID, LogStream, RequestLog, add_request_id

pytestmark = pytest.mark.anyio


async def test_a_line_has_the_fields_of_any_other():
    out, log = io.StringIO(), RequestLog()
    stream = LogStream(out)
    log.use(stream)
    log.request("POST", '/v1/"\u00e9', 200, 0.123456, "req_1")
    log.request("POST", "/", "client left", 1.0, "req_2")
    stream.flush()
    first, second = map(json.loads, out.getvalue().splitlines())
    assert list(first) == ["method", "path", "status", "seconds", "event", "request_id", "level", "timestamp"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", first.pop("timestamp"))
    assert list(first.values()) == ["POST", '/v1/"\u00e9', 200, 0.1235, "request", "req_1", "info"]
    assert second["status"] == "client left"


async def test_lines_are_written_soon_and_in_order():
    out = io.StringIO()
    stream = LogStream(out)
    loop = asyncio.get_running_loop()
    stream.later("1\n", loop)
    stream.later("2\n", loop)
    assert out.getvalue() == ""
    stream.write("3\n")
    stream.flush()
    assert out.getvalue() == "1\n2\n3\n"
    stream.later("4\n", loop)
    await asyncio.sleep(2 * request_log.DELAY)
    assert out.getvalue() == "1\n2\n3\n4\n"


async def test_many_lines_do_not_wait():
    out = io.StringIO()
    stream = LogStream(out)
    for n in range(request_log._MOST):
        stream.later(f"{n}\n", asyncio.get_running_loop())
    assert len(out.getvalue().splitlines()) == request_log._MOST


async def test_without_a_stream_structlog_writes_it():
    with structlog.testing.capture_logs() as lines:
        RequestLog().request("GET", "/", 200, 0.5, "req_3")
    assert [(line["event"], line["path"], line["status"]) for line in lines] == [("request", "/", 200)]


async def test_the_requests_id_stands_in_lines_logged_meanwhile():
    assert add_request_id(None, "info", {}) == {}
    token = REQUEST_ID.set("req_4")
    assert add_request_id(None, "info", {"event": "x"}) == {"event": "x", "request_id": "req_4"}
    REQUEST_ID.reset(token)
