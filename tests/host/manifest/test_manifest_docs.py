"""The pages on the manifest say of every key and option what the types say; their examples and messages are real."""

import re
from pathlib import Path

import msgspec
import pytest

from host.manifest import Manifest, options, read
from host.manifest.spec import load
from host.manifest.tables import rewritten, structs, table

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PATHS = [DOCS / "manifest.md", *sorted(DOCS.glob("engines/*.md")), *sorted(DOCS.glob("functions/*.md"))]
PAGES = {str(path.relative_to(DOCS)): path.read_text(encoding="utf-8") for path in PATHS}
PAGE = PAGES["manifest.md"]
PLUGIN_PAGE = (ROOT / "tests" / "plugins" / "coldframe_echo" / "README.md").read_text(encoding="utf-8")
EVERY_FUNCTION = ["A manifest", "A request and its answer", "Options", "Limits"]
DOCUMENTED = structs()
EXAMPLES = [
    text for page in PAGES.values() for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "model:" in text
]


def test_the_built_in_engines_are_found():
    assert {"manifest", "queue", "llama", "transformers"} <= set(DOCUMENTED)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_key_is_documented_with_type_default_and_meaning(name):
    sections = re.findall(rf"<!-- keys: {name} -->\n(.*?)<!-- end -->", "".join(PAGES.values()), re.DOTALL)
    assert len(sections) == 1, f"no page, or more than one, has the table for `{name}`"
    rows = sections[0].strip().splitlines()
    for row in table(DOCUMENTED[name]).splitlines():
        assert row in rows, f"`make docs` writes this row anew: {row}"


@pytest.mark.parametrize(
    ("name", "field"), [(name, field) for name, struct in DOCUMENTED.items() for field in struct.__struct_fields__]
)
def test_every_key_has_a_docstring_below_it(name, field):
    from host.manifest.schema import docs

    assert docs(DOCUMENTED[name]).get(field)


@pytest.mark.parametrize("page", PAGES)
def test_the_page_is_as_the_generator_writes_it(page):
    tables = {name: table(struct) for name, struct in DOCUMENTED.items()}
    assert rewritten(PAGES[page], tables) == PAGES[page], "`make docs` writes it anew"


def test_every_engine_and_function_has_a_page():
    packages = {path.parent.name for path in ROOT.glob("functions/*/__init__.py")} - {"engines"}
    functions = {f"functions/{name}.md" for name in packages}
    engines = {f"engines/{path.parent.name}.md" for path in ROOT.glob("functions/engines/*/options.py")}
    assert functions | engines | {"manifest.md"} == set(PAGES)


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("functions/")])
def test_a_functions_page_has_what_every_one_has(page):
    headings = re.findall(r"^## (.+)$", PAGES[page], re.MULTILINE)
    assert [name for name in headings if name in EVERY_FUNCTION] == EVERY_FUNCTION
    for language in ("yaml", "http", "json"):
        assert f"```{language}\n" in PAGES[page]


def test_a_new_key_would_be_missed():
    class Wider(Manifest, kw_only=True, frozen=True):
        brand_new: int = 3

    tables = {**{name: table(struct) for name, struct in DOCUMENTED.items()}, "manifest": table(Wider)}
    assert rewritten(PAGE, tables) != PAGE
    assert "| `brand_new` | a whole number | `3` |" in tables["manifest"]


def test_a_plug_in_documents_its_own_options():
    (options,) = structs("coldframe-echo").values()
    for field in msgspec.structs.fields(options):
        assert f"| `{field.encode_name}` |" in PLUGIN_PAGE


@pytest.mark.parametrize("text", EXAMPLES)
def test_examples_are_manifests(write, text):
    manifest, document = load(write(text))
    engine = "llama" if manifest.model.endswith(".gguf") else "transformers"
    options.read(document, DOCUMENTED[engine], DOCUMENTED.get(manifest.task, msgspec.Struct))


def test_the_full_example_has_every_key_at_its_default(write):
    full = max(EXAMPLES, key=len)
    document = read(write(full))
    assert set(document.data) == set(Manifest.__struct_fields__)
    manifest = load(write(full))[0]
    for field in msgspec.structs.fields(Manifest):
        if not field.required and field.name not in {"name", "aliases"} and field.default is not msgspec.NODEFAULT:
            assert getattr(manifest, field.name) == field.default


@pytest.mark.parametrize("line", re.findall(r"^manifests/small\.yaml:\d+: .+$", PAGE, re.MULTILINE))
def test_messages_are_those_one_gets(refused, line):
    number, key, words = re.fullmatch(r"manifests/small\.yaml:(\d+): (\w+): (.+)", line).groups()
    value = re.search(r"got `(.+?)`", words)
    error = refused(f"{chr(10) * (int(number) - 3)}{key}: {value[1] if value else 5}")
    assert str(error).endswith(f"small.yaml:{number}: {key}: {words}")
