"""What plug-ins register: found, refused, disabled; one that is broken hurts only itself."""

import types

import msgspec
import pluggy
import pytest

from host import hooks
from host.errors import FunctionDisabled, ManifestError
from host.events import Evicted
from host.function import Engine, Function, Operation
from host.hooks import hookimpl
from host.manifest import Manifest
from host.registry import OWN_PATHS, Registry


def function(name="f", *engines, tasks=()):
    return Function(name=name, summary="", operations=(), instances=dict.fromkeys(engines, "m:C"), tasks=tasks)


def engine(name, *suffixes, requires=()):
    return Engine(name=name, summary="", suffixes=suffixes, requires=requires)


def plugin(functions=(), engines=(), fails=None):
    module = types.SimpleNamespace()

    @hookimpl
    def coldframe_functions():
        if fails:
            raise fails
        return list(functions)

    @hookimpl
    def coldframe_engines():
        return list(engines)

    module.coldframe_functions, module.coldframe_engines = coldframe_functions, coldframe_engines
    return module


def registry(**plugins):
    manager = pluggy.PluginManager(hooks.GROUP)
    manager.add_hookspecs(hooks)
    for name, made in plugins.items():
        manager.register(made, name)
    return Registry(manager)


def manifest(**keys):
    return Manifest(**{"task": "f", "model": "org/repo", "name": "a", **keys})


def test_the_installed_plug_ins_are_found_and_none_is_broken():
    found = Registry.discover()
    assert {"process", "inline"} <= found.placements.keys()
    assert "echo" in found.functions
    assert "echo" in found.engines
    assert found.came_from["echo"] == "echo"
    assert [origin.plugin for origin in found.origins if origin.distribution == "coldframe"]
    first = [origin.distribution == "coldframe" for origin in found.origins]
    assert first == sorted(first, reverse=True)  # ours come first


def test_a_plug_in_that_raises_is_disabled_with_the_reason_and_no_other_one():
    found = registry(bad=plugin(fails=ImportError("no torch")), good=plugin([function("f", "e")], [engine("e")]))
    assert found.disabled == {"bad": "ImportError: no torch"}
    assert set(found.functions) == {"f"}


def test_a_name_cannot_be_taken_twice():
    found = registry(one=plugin([function("f", "e")], [engine("e")]), two=plugin([function("f", "e")]))
    assert found.came_from["f"] == "one"
    assert "`f` is registered by `one` already" in found.disabled["two"]


def test_an_engine_whose_library_is_missing_disables_what_runs_on_it_alone():
    found = registry(
        p=plugin(
            [function("f", "e"), function("g", "e", "h")], [engine("e", requires=("no_such_library",)), engine("h")]
        )
    )
    assert found.disabled["engine e"] == "not installed: no_such_library"
    assert "no engine to run on" in found.disabled["function f"]
    assert "function g" not in found.disabled
    with pytest.raises(FunctionDisabled, match="not installed: no_such_library"):
        found.engine(manifest(engine="e"), found.functions["f"])


@pytest.mark.parametrize(("task", "name"), [("f", "f"), ("text-f", "f"), ("g", "g")])
def test_tasks_by_name_and_by_pipeline_name(task, name):
    found = registry(p=plugin([function("f", "e", tasks=("text-f",)), function("g", "e")], [engine("e")]))
    assert found.function(task).name == name


def test_an_unknown_task_names_the_nearest_one():
    found = registry(p=plugin([function("embeddings", "e")], [engine("e")]))
    with pytest.raises(ManifestError, match="did you mean `embeddings`") as caught:
        found.function("embedings")
    assert caught.value.key == "task"
    with pytest.raises(ManifestError, match="served here: embeddings"):
        found.function("zzz")


@pytest.mark.parametrize(
    ("keys", "file", "chosen"),
    [
        ({"model": "org/repo/x.gguf"}, None, "llama"),
        ({"model": "org/repo"}, None, None),
        ({"model": "org/repo"}, "x.gguf", "llama"),
        ({"model": "org/repo"}, "folder/", "tf"),
        ({"model": "org/repo", "engine": "tf"}, None, "tf"),
        ({"model": "org/repo", "engine": "tf"}, "x.gguf", "tf"),
        ({"model": "org/repo-1.5"}, None, None),
        ({"model": "org/repo/onnx/model_q4.onnx"}, None, "onnx"),
        ({"model": "org/repo"}, "model.onnx", "onnx"),
        ({"model": "org/repo", "engine": "onnx"}, None, "onnx"),
        ({"model": "org/repo", "engine": "onnx"}, "folder/", "onnx"),
    ],
)
def test_the_engine_goes_by_the_files(tmp_path, keys, file, chosen):
    engines = [engine("llama", ".gguf"), engine("tf"), engine("onnx", ".onnx")]
    found = registry(p=plugin([function("f", "llama", "tf", "onnx")], engines))
    path = None
    if file is not None:
        path = tmp_path / file.rstrip("/")
        path.mkdir() if file.endswith("/") else path.write_text("")
    engine_ = found.engine(manifest(**keys), found.functions["f"], path)
    assert (engine_.name if engine_ else None) == chosen


def test_a_file_that_no_engine_takes_is_refused_by_name(tmp_path):
    found = registry(p=plugin([function("f", "llama", "tf")], [engine("llama", ".gguf"), engine("tf")]))
    path = tmp_path / "x.bin"
    path.write_text("")
    with pytest.raises(ManifestError, match=r"no engine of `f` runs `x\.bin`"):
        found.engine(manifest(), found.functions["f"], path)


def test_a_file_of_an_engine_that_is_disabled_is_told_so_and_runs_on_no_other(tmp_path):
    engines = [engine("tf"), engine("onnx", ".onnx", requires=("no_such_library",))]
    found = registry(p=plugin([function("f", "tf", "onnx")], engines))
    assert "function f" not in found.disabled
    with pytest.raises(FunctionDisabled, match="`onnx` is disabled: not installed: no_such_library"):
        found.engine(manifest(model="./m.onnx"), found.functions["f"], tmp_path / "m.onnx")
    assert found.engine(manifest(), found.functions["f"], tmp_path).name == "tf"


@pytest.mark.parametrize("name", ["nope", "other"])
def test_an_engine_that_does_not_serve_the_function_is_refused(name):
    found = registry(p=plugin([function("f", "e")], [engine("e"), engine("other")]))
    with pytest.raises(ManifestError, match="it runs on: e") as caught:
        found.engine(manifest(engine=name), found.functions["f"])
    assert caught.value.key == "engine"


def test_an_observer_that_raises_hurts_nobody():
    module = types.SimpleNamespace()

    @hookimpl
    def coldframe_event(event):
        raise ZeroDivisionError

    module.coldframe_event = coldframe_event
    seen = []
    others = [types.SimpleNamespace(), types.SimpleNamespace()]
    for other in others:
        other.coldframe_event = hookimpl(lambda event: seen.append(event))
    event = Evicted(name="a", task="f", reason="idle")
    registry(before=others[0], raises=module, after=others[1]).observe(event)
    assert seen == [event, event]


def test_a_hook_that_raises_takes_nothing_back_from_those_before_and_nothing_from_those_after():
    engines = [engine("e")]
    found = registry(
        a=plugin([function("f", "e")], engines), b=plugin(fails=OSError("x")), c=plugin([function("g", "e")])
    )
    assert found.came_from == {"f": "a", "e": "a", "g": "c"}
    assert list(found.functions) == ["f", "g"]
    assert found.disabled == {"b": "OSError: x"}


def test_a_function_with_an_option_of_its_engine_is_disabled_and_no_other_one():
    class Ours(msgspec.Struct):
        labels: int = 0

    clashing = msgspec.structs.replace(function("f", "e"), options=Ours)
    known = msgspec.structs.replace(engine("e"), options=Ours)
    found = registry(p=plugin([clashing, function("g", "e")], [known]))
    assert set(found.functions) == {"g"}
    assert found.disabled == {"function f": "Ours and Ours both have the option `labels`"}
    with pytest.raises(ManifestError, match="function f is disabled: Ours"):
        found.function("f")


def test_a_hook_that_is_not_marked_disables_its_plug_in_with_the_reason():
    unmarked = types.SimpleNamespace(coldframe_functions=lambda: [function("lost")])
    found = registry(forgetful=unmarked, good=plugin([function("f", "e")], [engine("e")]))
    assert "`coldframe_functions` is not marked with host.hooks.hookimpl" in found.disabled["forgetful"]
    assert list(found.functions) == ["f"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/v1/one", "its path /v1/one is taken by the function one"), ("/livez", "is taken by the host itself")],
)
def test_a_function_whose_path_is_taken_is_disabled_by_itself(path, reason):
    def serving(name, path):
        operation = Operation(name=name, request=dict, answer=dict, path=path)
        return msgspec.structs.replace(function(name, "e"), operations=(operation,))

    found = registry(first=plugin([serving("one", "/v1/one")], [engine("e")]), second=plugin([serving("two", path)]))
    assert list(found.functions) == ["one"]
    assert reason in found.disabled["function two"]


def test_the_hosts_own_paths_are_those_of_its_routes():
    from host import app

    own = {path for route in app.ROUTES for path in route.paths if "{" not in path}
    assert own <= set(OWN_PATHS)
