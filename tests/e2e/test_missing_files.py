"""A manifest whose files are not there: its owner is told where, and a client only that."""

import pytest


@pytest.mark.parametrize("model", ["./nothere.echo", "package:coldframe_echo/nothere.echo", "/nowhere/at/all.echo"])
def test_clients_learn_nothing_of_the_machine(host, model):
    (host.folder / "payroll_2026.xlsx").touch()
    host.write("gone", model=model)
    host.until(lambda: host.status("gone") is not None)
    answer = host.client.post("/v1/echo", json={"model": "gone", "text": "x"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (404, "model_file_not_found")
    assert "The files of `gone` are not where its manifest says" in error["message"]
    told = answer.text + host.client.get("/v1/functions").text
    assert not any(word in told for word in ("payroll", "nowhere", str(host.folder), "site-packages"))
