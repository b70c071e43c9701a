"""Errors as clients read them: status, OpenAI's error object, request ids and the headers that SDKs obey."""

import json
import threading
from pathlib import Path

import httpx
import pytest

KEYS = {"message", "type", "param", "code"}


def check(response, status, code, param=None):
    assert response.status_code == status, response.text
    assert response.headers["content-type"].startswith("application/json")
    error = response.json()["error"]
    assert error.keys() >= KEYS
    assert (error["code"], error["param"]) == (code, param), error
    assert error["message"]
    assert response.headers["x-request-id"]
    for secret in ("Traceback", str(Path(__file__).parents[2]), "site-packages", ".py"):
        assert secret not in response.text
    return error


@pytest.mark.parametrize(
    "body", ["{", "", "nope", "[1]", '"x"', "null", "{'model': 'a'}", "\xff", '{"model": "a"} x'], ids=repr
)
def test_what_is_no_json_object_is_400(host, body):
    error = check(post(host, body), 400, "invalid_request")
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({"model": 5}, "model", "string"),
        ({"model": "a", "count": "x"}, "count", "integer"),
        ({"model": "a", "count": -1}, "count", ""),
        ({"model": "a", "stream": "yes"}, "stream", "boolean"),
        ({"model": "a", "delay": []}, "delay", "number"),
        ({"text": "x"}, "model", ""),
        ({"model": None}, "model", ""),
        ({"model": ""}, "model", "model"),
        ({"model": "a", "zzz": 1}, "zzz", "known fields: "),
        ({"model": "a", "cuont": 1}, "cuont", "did you mean `count`?"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_a_wrong_field_is_named(host, body, param, says):
    error = check(post(host, json.dumps(body)), 400, "invalid_request", param)
    assert says in error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_an_unknown_model_lists_what_is_served(host, stream):
    error = check(host.echo("smal-queue", stream=stream), 404, "model_not_found", "model")
    assert "Did you mean `small-queue`?" in error["message"]
    assert "`smal-queue` does not exist" in error["message"]
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", ["/", "/v1", "/v2/nothing", "/v1/v1/echo", "/v1/echo/more", "/..%2f..%2fetc/passwd"])
def test_an_unknown_path_is_404_in_the_same_shape(host, method, path):
    check(host.client.request(method, path), 404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/echo", "POST"),
        ("DELETE", "/v1/models", "GET"),
        ("PUT", "/v1/echo", "POST"),
        ("POST", "/health", "GET"),
    ],
)
def test_a_wrong_method_is_405_and_says_which_are_right(host, method, path, allow):
    response = host.client.request(method, path)
    check(response, 405, "method_not_allowed")
    assert allow in response.headers["allow"]


@pytest.mark.parametrize("path", ["/v1/echo", "/v1/models", "/v1/models/a", "/health", "/nothing", "/v1/functions"])
@pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
def test_head_and_options_never_fail(host, method, path):
    response = host.client.request(method, path)
    assert response.status_code < 500
    assert response.headers["x-request-id"]
    if method == "HEAD":
        assert response.content == b""


def test_too_large_a_body_is_413(host):
    response = post(host, json.dumps({"model": "a", "text": "x" * (2 << 20)}))
    check(response, 413, "request_too_large")


def test_too_large_a_body_without_a_length_is_413(host):
    def chunks():
        yield b'{"model": "a", "text": "'
        for _ in range(32):
            yield b"x" * 65536
        yield b'"}'

    response = httpx.post(f"{host.url}/v1/echo", content=chunks(), headers={"content-type": "application/json"})
    check(response, 413, "request_too_large")


@pytest.mark.parametrize("header", ["application/json", "application/json; charset=utf-8", "text/plain", None, "x/y",
                                    "application/x-www-form-urlencoded", "application/vnd.api+json", ""])  # fmt: skip
def test_a_body_is_json_whatever_its_content_type_says(host, header):
    headers = {} if header is None else {"content-type": header}
    response = host.client.post("/v1/echo", content=b'{"model": "a", "text": "h\xc3\xa9"}', headers=headers)
    assert (response.status_code, response.json().get("text")) == (200, "hé"), response.text


def test_null_is_the_same_as_absent(host):
    body = {"model": "a", "text": None, "count": None, "crash_after": None, "error": None}
    assert post(host, json.dumps(body)).json()["text"].startswith(post(host, '{"model": "a"}').json()["text"])


@pytest.mark.parametrize("path", ["/v1/echo/", "/v1/models/", "/v1/models/a/", "/v1/functions/", "/health/"])
def test_a_trailing_slash_changes_nothing(host, path):
    method = "POST" if "echo" in path else "GET"
    response = host.client.request(method, path, content=b'{"model": "a"}' if method == "POST" else None)
    assert response.status_code == 200, response.text


# ------------------------------------------------------------------------------------------------ request ids


@pytest.mark.parametrize("name", ["x-request-id", "X-Client-Request-Id"])
def test_the_clients_id_is_kept(host, name):
    for path in ("/health", "/nothing", "/v1/models"):
        assert host.client.get(path, headers={name: "my-id-1"}).headers["x-request-id"] == "my-id-1"
    with host.client.stream("POST", "/v1/echo", json={"model": "a", "stream": True}, headers={name: "s"}) as response:
        assert response.headers["x-request-id"] == "s"


@pytest.mark.parametrize("value", ["", "x" * 300, "a b", "ünï"], ids=["empty", "long", "blank", "latin"])
def test_an_id_that_is_no_fit_header_is_replaced(host, value):
    given = host.client.get("/health", headers={"x-request-id": value.encode("latin-1")}).headers["x-request-id"]
    assert given.startswith("req_")


def test_ids_differ(host):
    assert len({host.client.get("/livez").headers["x-request-id"] for _ in range(20)}) == 20


# ------------------------------------------------------------------------------------------------ retries


@pytest.mark.parametrize("stream", [False, True])
def test_a_full_queue_is_429_with_when_to_come_again(host, stream):
    host.echo("small-queue")
    with host.open("small-queue", hang=True) as running:
        lines = running.iter_lines()
        next(lines)
        waits = threading.Thread(target=lambda: host.echo("small-queue"))
        waits.start()
        host.until(lambda: host.status("small-queue")["waiting"] == 1)
        response = host.echo("small-queue", stream=stream)
        error = check(response, 429, "queue_full")
        assert (error["type"], error["queue_size"]) == ("rate_limit_error", 1)
        assert (response.headers["retry-after"], response.headers["retry-after-ms"]) == ("1", "1000")
    waits.join()


@pytest.mark.parametrize("stream", [False, True])
def test_too_long_a_wait_is_503(host, stream):
    with host.open("impatient", hang=True) as running:
        lines = running.iter_lines()
        next(lines)
        response = host.echo("impatient", stream=stream)
        check(response, 503, "queue_timeout")
        assert response.headers["retry-after"] == "1"


@pytest.mark.parametrize("stream", [False, True])
def test_a_failed_load_is_503_with_the_rest_of_the_cool_down(host, stream):
    name = f"broken-{stream}"  # which failed for nobody yet
    host.write(name, options={"load_fails": "the disk is on fire"})
    host.until(lambda: host.status(name))
    first = host.echo(name, stream=stream)
    error = check(first, 503, "load_failed")
    assert "the disk is on fire" in error["message"]
    second = host.echo(name, stream=stream)
    check(second, 503, "load_failed")
    assert 0 < int(second.headers["retry-after"]) <= int(first.headers["retry-after"]) <= 20
    assert int(second.headers["retry-after-ms"]) < 20_000


def test_out_of_memory_is_503_of_its_own_code(host):
    check(host.echo("oom"), 503, "out_of_memory")


def test_what_can_never_fit_is_not_to_be_tried_again(host):
    response = host.echo("huge")
    error = check(response, 503, "insufficient_memory")
    assert response.headers["x-should-retry"] == "false"
    assert "retry-after" not in response.headers
    assert (error["pool"], error["bytes_needed"]) == ("ram", 1 << 40)
    assert error["bytes_budget"] < 1 << 40


def test_a_death_is_502(host):
    error = check(host.echo("a", crash_after=0, crash=9), 502, "instance_died")
    assert "exit status 9" in error["message"]
    assert host.echo("a").status_code == 200


def test_a_bug_is_an_opaque_500(host):
    error = check(host.echo("a", error="bug"), 500, "server_error")
    assert "ZeroDivision" not in error["message"]


@pytest.mark.parametrize(
    ("code", "status"), [("context_length_exceeded", 400), ("queue_full", 429), ("unavailable", 503)]
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_instances_own_error_has_its_status_before_the_first_answer(host, code, status, stream):
    check(host.echo("a", error=code, stream=stream), status, code)


def post(host, body):
    content = body.encode("latin-1") if isinstance(body, str) else body
    return host.client.post("/v1/echo", content=content, headers={"content-type": "application/json"})
