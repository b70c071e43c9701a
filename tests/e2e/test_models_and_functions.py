"""What the host tells of itself: models, functions, events, health, metrics. None of it wakes anything."""

import json
import threading

import httpx
import pytest


def test_models_are_listed_with_their_aliases_and_nothing_wakes(host):
    before = host.status("org/name:Q8_0")
    for path in ("/v1/models", "/models"):
        listed = host.client.get(path).json()
        assert listed["object"] == "list"
        found = {model["id"]: model for model in listed["data"]}
        assert {"a", "org/name:Q8_0", "short", "other/alias"} <= found.keys()
        assert {"id", "object", "created", "owned_by", "status", "context_length", "max_model_len"} <= found[
            "short"
        ].keys()
        assert (found["short"]["object"], type(found["short"]["created"])) == ("model", int)
    host.client.get("/v1/models/short")
    host.client.get("/health")
    host.client.get("/metrics")
    after = host.status("org/name:Q8_0")
    assert (after["state"], after["loads"]) == (before["state"], before["loads"]) == ("cold", 0)


@pytest.mark.parametrize(
    "path",
    ["org/name:Q8_0", "org%2Fname:Q8_0", "org%2fname%3AQ8_0", "short", "other/alias", "other%2Falias"],
)
@pytest.mark.parametrize("root", ["/v1/models/", "/models/"])
def test_one_model_by_any_of_its_names(host, root, path):
    response = host.client.get(root + path)
    assert response.status_code == 200, response.text
    assert response.json()["id"] == httpx.URL(f"http://x/{path}").path.lstrip("/")


def test_an_unknown_model_is_404(host):
    response = host.client.get("/v1/models/nope")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")


def test_an_alias_with_slashes_answers(host):
    assert host.echo("other/alias").json()["text"] == "x"
    host.client.post("/v1/functions/org%2Fname:Q8_0/unload")


def test_a_context_is_told_per_slot_once_it_is_known(host):
    host.echo("a")
    model = host.client.get("/v1/models/a").json()
    assert (model["context_length"], model["max_model_len"], model["status"]) == (4096, 4096, {"value": "loaded"})
    status = host.status("a")
    assert (status["slots"], status["capacity"], status["context"]) == (4, 4, 4096)
    assert status["pid"] in host.tree()
    assert status["idle_left"] > 0
    assert status["plan"]["notes"]


def test_loading_and_unloading_by_hand(host):
    for name in ("org/name:Q8_0", "org%2Fname:Q8_0", "short"):
        loaded = host.client.post(f"/v1/functions/{name}/load").json()
        assert (loaded["name"], loaded["state"]) == ("org/name:Q8_0", "ready")
        assert host.client.post(f"/v1/functions/{name}/unload").json()["unloaded"] is True
        assert host.client.post(f"/v1/functions/{name}/unload").json()["unloaded"] is False
        assert host.status("org/name:Q8_0")["state"] == "cold"


@pytest.mark.parametrize("path", ["load", "nope/load", "a/explode", "a/", "/load"])
def test_loading_what_is_not_there_is_404(host, path):
    response = host.client.post(f"/v1/functions/{path}")
    assert (response.status_code, response.json()["error"]["type"]) == (404, "invalid_request_error")


def test_a_failed_load_by_hand_is_503_and_seen_in_the_list(host):
    response = host.client.post("/v1/functions/broken/load")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "load_failed")
    status = host.status("broken")
    assert status["state"] == "failed"
    assert status["cooldown_left"] > 0
    assert "the disk is on fire" in status["last_error"]["message"]


def test_events_are_streamed_and_end_when_the_reader_leaves(host):
    heard = []
    with httpx.stream("GET", f"{host.url}/v1/functions/events", timeout=60) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-request-id"]
        lines = response.iter_lines()
        threading.Thread(target=lambda: host.client.post("/v1/functions/short/load")).start()
        for line in lines:
            if line.startswith("event: "):
                heard.append(line.removeprefix("event: "))
            if line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                if event.get("event") == "loaded":
                    break
    assert heard[0] == "status"
    assert {"state", "progress", "loaded"} <= set(heard)
    host.client.post("/v1/functions/short/unload")


def test_events_of_one_function_and_comments_while_nothing_happens(host):
    with httpx.stream("GET", f"{host.url}/v1/functions/events", params={"name": "short"}, timeout=60) as response:
        host.echo("a")
        lines = []
        for line in response.iter_lines():
            lines.append(line)
            if line.startswith(":"):
                break
    assert [json.loads(line[6:])["name"] for line in lines if line.startswith("data: ")] == ["org/name:Q8_0"]
    assert lines[-1] == ": keep-alive"


def test_events_of_what_is_not_served_is_404(host):
    assert host.client.get("/v1/functions/events", params={"name": "nope"}).status_code == 404


def test_probes_and_health(host):
    assert host.client.get("/livez").json() == {"status": "ok"}
    assert host.client.get("/readyz").json() == {"status": "ok"}
    health = host.client.get("/health").json()
    assert health["status"] == "ok"
    assert health["remote_code"] == []
    assert health["memory"]["ram"]["reserved"] <= health["memory"]["ram"]["budget"]
    assert "coldframe_requests" in host.client.get("/metrics").text


def test_probes_answer_while_a_model_loads(host):
    host.write("endless", options={"load_seconds": 600})
    host.until(lambda: host.status("endless"))
    with host.asking("endless"):
        host.until_state("endless", "loading")
        for _ in range(10):
            assert host.client.get("/livez").status_code == 200
        assert host.status("endless")["state"] == "loading"
    host.until_state("endless", "cold")
