"""The command line of classification."""

from __future__ import annotations

from functions.classify.cli import ClassifyCli


def test_the_shell_prints_a_line_for_each_label() -> None:
    shell = ClassifyCli()
    listed = {"label": "a", "score": 0.9, "labels": [{"label": "a", "score": 0.9}, {"label": "b", "score": 0.05}]}
    none = {"label": "a", "score": 0.25, "labels": []}
    assert shell.body("some words") == {"input": "some words"}
    assert shell.show({"data": [listed, none]}) == "a 0.9000\nb 0.0500\nnone (a 0.2500)"
