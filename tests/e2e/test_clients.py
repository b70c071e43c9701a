"""What clients of all kinds bring along: browsers, probes, readers of the schema, and bodies that nobody expected."""

import json

import pytest

ORIGIN = "https://app.example"


def test_other_origins_are_refused_by_default(host):
    headers = {"origin": ORIGIN, "access-control-request-method": "POST"}
    assert "access-control-allow-origin" not in host.client.options("/v1/echo", headers=headers).headers


@pytest.mark.parametrize("path", ["/v1/echo", "/v1/functions/a/load", "/v1/functions/a/unload"])
@pytest.mark.parametrize("origin", [ORIGIN, "null", "http://evil.example:80", "http://[", ""])
def test_pages_of_other_origins_change_nothing(host, origin, path):
    """A form of any page may send these without asking first: they are plain texts to the browser."""
    before = host.status("a")["state"]
    body = {"content": '{"model": "a", "text": "x"}', "headers": {"origin": origin, "content-type": "text/plain"}}
    answer = host.client.post(path, **body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "origin_refused")
    assert host.status("a")["state"] == before


@pytest.mark.parametrize("name", ["localhost:8000", "127.0.0.1:8000", "[::1]:8000"])
def test_pages_of_the_host_itself_may_call(host, name):
    headers = {"origin": f"http://{name}", "host": name}
    assert host.client.post("/v1/echo", json={"model": "a", "text": "x"}, headers=headers).status_code == 200


def test_a_name_that_points_here_is_not_the_host_itself(host):
    headers = {"origin": "http://rebound.example:8000", "host": "rebound.example:8000"}
    assert host.client.post("/v1/echo", json={"model": "a", "text": "x"}, headers=headers).status_code == 403


def test_all_origins_may_call_where_the_settings_say_so(start):
    host = start({"a": {}}, cors=["*"])
    answer = host.client.post("/v1/echo", json={"model": "a", "text": "x"}, headers={"origin": ORIGIN})
    assert answer.status_code == 200


def test_origins_that_are_named_may_call(start):
    host = start({"a": {}}, cors=[ORIGIN])
    headers = {"origin": ORIGIN, "access-control-request-method": "POST", "access-control-request-headers": "x-any"}
    preflight = host.client.options("/v1/echo", headers=headers)
    assert preflight.status_code in (200, 204)
    assert preflight.headers["access-control-allow-origin"] == ORIGIN
    assert "POST" in preflight.headers["access-control-allow-methods"]
    wrong = host.client.post("/v1/echo", json={"model": "nobody"}, headers={"origin": ORIGIN})
    assert (wrong.status_code, wrong.headers["access-control-allow-origin"]) == (404, ORIGIN)
    assert "x-request-id" in wrong.headers["access-control-expose-headers"].lower()


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/health"])
def test_probes_may_ask_for_the_head_only(host, path):
    answer = host.client.head(path)
    assert (answer.status_code, answer.content) == (200, b"")


def test_the_schema_is_json_and_tells_errors_as_they_are(host):
    schema = host.client.get("/schema").json()
    assert schema == host.client.get("/schema/openapi.json").json()
    chat = schema["paths"]["/v1/chat/completions"]["post"]
    assert chat["responses"]["400"]["content"]["application/json"]["schema"]["$ref"].endswith("/Error")
    assert chat["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].endswith("/Completion")
    assert set(schema["components"]["schemas"]["Error"]["properties"]) == {"error"}


@pytest.mark.parametrize("body", ["[" * 100_000, '{"model": "a", "x": ' + "[" * 3000 + "]" * 3000 + "}"])
def test_a_body_that_is_nested_too_deeply_is_a_bad_request(host, body):
    answer = host.client.post("/v1/echo", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_an_integer_of_more_than_64_bits_is_a_bad_request(served):
    for body in ({"input": "x", "dimensions": 10**30}, {"input": [10**30]}):
        answer = served.client.post("/v1/embeddings", json={"model": "all-minilm-l6-v2", **body})
        assert answer.status_code == 400, answer.text


def test_one_deployment_by_its_name_with_slashes(host):
    found = host.client.get("/v1/functions/org/name:Q8_0").json()
    assert (found["name"], found["task"]) == ("org/name:Q8_0", "echo")
    assert host.client.get("/v1/functions/nobody").json()["error"]["code"] == "model_not_found"


def test_one_clients_exception_is_not_told_to_another(host):
    assert host.echo("a", error="bug").status_code == 500
    answer = host.echo("a", crash_after=1)
    assert answer.status_code == 502
    assert "ZeroDivisionError" not in json.dumps(answer.json())
    host.until(lambda: host.status("a")["last_error"])
    assert "ZeroDivisionError" not in host.status("a")["last_error"]["log"]
    host.until(lambda: any("ZeroDivisionError" in line for line in host.log))


def test_a_call_that_outlasts_the_drain_is_told_so(start):
    host = start({"a": {}}, drain=0.3)
    with host.open(delay=0.1, count=100) as response:
        lines = response.iter_lines()
        next(lines)
        host.client.post("/v1/functions/a/unload")
        told = [json.loads(line[6:])["error"] for line in lines if line.startswith('data: {"error"')]
    assert [error["code"] for error in told] == ["unavailable"]
    assert "unloaded" in told[0]["message"]
