"""YAML text as plain data, with the line of every key and the text of every bare word.

Words mean what YAML authors mean by them: `yes` is true, `1e-3` a number, `2024-01-01`, `1:30` and `007` are text.
Anchors, aliases and `<<` work, within bounds.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, NoReturn

import yaml

from host.errors import ManifestError

Where = tuple[str | int, ...]
"""The way to a value: `("queue", "size")`, `("aliases", 0)`."""
_DEPTH_MAX = 24
_NODES_MAX = 10_000
_TOO_MANY = f"more than {_NODES_MAX} values"
_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"
_TRUE = {"yes", "true", "on"}


class _Loader(yaml.SafeLoader):
    """PyYAML's parser with resolvers of its own, and bounds that hold before the whole text is scanned."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own protocol
    depth = 0
    nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose one node, unless it stands too deep or is one of too many."""
        self.depth += 1
        self.nodes += 1
        if self.depth > _DEPTH_MAX or self.nodes > _NODES_MAX:
            problem = f"nested deeper than {_DEPTH_MAX} levels" if self.depth > _DEPTH_MAX else _TOO_MANY
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


def _resolve(word: str, pattern: str, first: str) -> None:
    _Loader.add_implicit_resolver(_TAG + word, re.compile(rf"^(?:{pattern})$"), [*first, *([""] if not first else [])])


_resolve("null", "~|null|Null|NULL|", "")
_resolve("null", "~|null|Null|NULL", "~nN")
_resolve(
    "bool", "|".join(f"{w}|{w.title()}|{w.upper()}" for w in ("yes", "no", "true", "false", "on", "off")), "yYnNtTfFoO"
)
_resolve("int", r"[-+]?(?:0|[1-9][0-9_]*)|0x[0-9a-fA-F]+", "-+0123456789")
_resolve("float", r"[-+]?(?:[0-9][0-9_]*\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", "-+.0123456789")
_resolve("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", "-+.")
_resolve("merge", "<<", "<")


class Tree:
    """What one file says: `data`, `lines` by place (from 1), and `words`, the text of values written without quotes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.data: dict[str, Any] = {}
        self.lines: dict[Where, int] = {}
        self.words: dict[Where, str] = {}
        self._nodes = 0
        self._open: list[yaml.Node] = []

    def error(self, message: str, where: Where = (), node: yaml.Node | None = None) -> ManifestError:
        """Return the error that says `message` about the value at `where`, with the nearest line known."""
        near = (self.lines[where[:n]] for n in range(len(where), -1, -1) if where[:n] in self.lines)
        line = node.start_mark.line + 1 if node is not None else next(near, None)
        return ManifestError(message, file=self.file, line=line, key=dotted(where) or None)

    def value(self, node: yaml.Node, where: Where) -> Any:
        """Return the node as plain data, writing down lines and words on the way."""
        self._nodes += 1
        if self._nodes > _NODES_MAX:
            raise self.error(f"{_TOO_MANY}, counting what aliases repeat", where)
        if any(node is parent for parent in self._open):
            raise self.error("an alias inside its own anchor never ends", where, node)
        self.lines.setdefault(where, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, where)
        self._open.append(node)
        try:
            if isinstance(node, yaml.SequenceNode):
                self._check_tag(node, "seq", where)
                return [self.value(item, (*where, index)) for index, item in enumerate(node.value)]
            assert isinstance(node, yaml.MappingNode)
            self._check_tag(node, "map", where)
            return self._mapping(node, where)
        finally:
            self._open.pop()

    def _mapping(self, node: yaml.MappingNode, where: Where) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                found = {**self._merged(value, where), **found}
        own: dict[str, Any] = {}
        for key_node, value in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self._key(key_node, where)
            here = (*where, key)
            if key in own:
                first = self.lines[here]
                raise self.error(f"the key `{key}` stands here twice (first on line {first})", here, key_node)
            self.lines[here] = key_node.start_mark.line + 1
            self.words.pop(here, None)
            own[key] = self.value(value, here)
        return {**found, **own}

    def _merged(self, node: yaml.Node, where: Where) -> dict[str, Any]:
        """Return what `<<` brings in; of several mappings the first that has a key wins."""
        parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
        found: dict[str, Any] = {}
        for part in parts:
            if not isinstance(part, yaml.MappingNode):
                raise self.error("`<<` takes an alias of keys and values, or a list of such", where, node)
            found = {**self.value(part, where), **found}
        return found

    def _key(self, node: yaml.Node, where: Where) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self.error("a key is one word", where, node)
        if node.tag != _TAG + "str":
            raise self.error(f"the key `{node.value}` is no text in YAML: put it in quotes", where, node)
        return str(node.value)

    def _scalar(self, node: yaml.ScalarNode, where: Where) -> Any:
        text = str(node.value)
        if node.style is None:
            self.words[where] = text
        match node.tag.removeprefix(_TAG):
            case "str":
                return text
            case "null":
                return None
            case "bool":
                return text.lower() in _TRUE
            case "int":
                return self._int(text, where)
            case "float":
                return self._float(text, where)
        return self._refuse_tag(node, where)

    def _int(self, text: str, where: Where) -> int:
        digits = text.replace("_", "")
        try:
            number = int(digits, 16 if digits[:2] == "0x" else 10) if len(digits) < 30 else 1 << 64
        except ValueError:
            raise self.error(f"`{text}` is not a whole number", where) from None
        if not -(1 << 63) <= number < 1 << 63:
            raise self.error(f"the number `{text[:40]}` is too large", where)
        return number

    def _float(self, text: str, where: Where) -> float:
        try:
            number = float(text.replace("_", ""))
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise self.error(f"`{text[:40]}` is not a number to count with; a time without end is `never`", where)
        return number

    def _check_tag(self, node: yaml.Node, tag: str, where: Where) -> None:
        if node.tag != _TAG + tag:
            self._refuse_tag(node, where)

    def _refuse_tag(self, node: yaml.Node, where: Where) -> NoReturn:
        tag = node.tag.replace(_TAG, "!!")
        raise self.error(f"the YAML tag `{tag}` is not allowed here: only text, numbers, lists and keys", where, node)


def parse(text: str, file: Path) -> Tree:
    """Return what the text of one file says, which has to be one mapping; raises `ManifestError`."""
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character = error.character if isinstance(error.character, int) else ord(error.character[:1])
        raise ManifestError(f"the character U+{character:04X} is not allowed in YAML", file=file, line=line) from None
    except yaml.YAMLError as error:
        raise _not_yaml(error, file) from None
    except (ValueError, OverflowError) as error:
        raise ManifestError(f"is not YAML: {error}", file=file) from None
    if node is None or (isinstance(node, yaml.ScalarNode) and not node.value):
        raise ManifestError("the file is empty; a manifest says at least `task` and `model`", file=file, line=1)
    if not isinstance(node, yaml.MappingNode):
        line = node.start_mark.line + 1
        raise ManifestError("expected keys and values such as `task: chat`", file=file, line=line)
    tree = Tree(file)
    tree.data = tree.value(node, ())
    return tree


def _not_yaml(error: yaml.YAMLError, file: Path) -> ManifestError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = str(getattr(error, "problem", None) or error)
    if "'\\t'" in problem:
        problem += "; YAML indents with blanks, not with tabs"
    if "but found another document" in problem:
        problem = "one file is one manifest, and here `---` begins a second one"
    return ManifestError(f"is not YAML: {problem}", file=file, line=mark.line + 1 if mark else None)


def dotted(where: Where) -> str:
    """Return the place as people write it: `queue.size`, `aliases[0]`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where).lstrip(".")
