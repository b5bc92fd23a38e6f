"""The rooms and the arrows between them, read from the source.

What counts as an arrow is an import that runs when a module is loaded. Imports under `if TYPE_CHECKING` never run, and
imports inside a function run when a user asks for what they bring; both may point anywhere within the rule
`replay → kernel`, which holds for them too, and the limits on what may touch the SDK and sockets hold for them as well.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("kernel", "replay")
HEAVY = ("grpc", "aiohttp", "rich", "requests", "sqlite3", "jsonschema_rs", "opentelemetry", "syrupy", "click")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))}


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text("utf-8"), str(FILES[module]))


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def imports(module: str, *, at_load: bool) -> Iterator[str]:
    """What a module imports: when it is loaded, or anywhere in it."""
    waiting: list[ast.AST] = list(tree(module).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            assert not node.level, f"{module} imports {base} by a relative name; write the whole one"
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif at_load and (
            is_type_checking(node) or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        ):
            waiting.extend(getattr(node, "orelse", ()))
        else:
            waiting.extend(ast.iter_child_nodes(node))


def room(name: str) -> str:
    return name.partition(".")[0]


def test_the_kernel_does_not_know_that_replay_exists() -> None:
    wrong = [
        (m, name) for m in FILES if room(m) == "kernel" for name in imports(m, at_load=False) if room(name) == "replay"
    ]
    assert wrong == []


def test_neither_room_imports_tests_or_fixtures() -> None:
    wrong = [(m, name) for m in FILES for name in imports(m, at_load=False) if room(name) in ("tests", "fixtures")]
    assert wrong == []


DOORS = [m for m, path in FILES.items() if path.name == "__init__.py" and "kernel.door" in path.read_text("utf-8")]


@cache
def home(room: str) -> dict[str, str]:
    """Which module each name that a room's door offers lives in."""
    blocks = [
        statement
        for node in tree(room).body
        if isinstance(node, ast.If) and is_type_checking(node)
        for statement in node.body
    ]
    imported = [node for node in blocks if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: str(node.module) for node in imported for alias in node.names}


def target(name: str) -> str | None:
    """The module of ours that an import leads to: through a door, to the module that holds the name."""
    package, _, last = name.rpartition(".")
    if package in DOORS and last in home(package):
        behind = home(package)[last]
        return target(f"{behind}.{last}") if behind in DOORS else behind
    return name if name in FILES else package if package in FILES else None


def arrows() -> dict[str, set[str]]:
    """Which modules each module loads. `from room import name` leads to the module of the name."""
    found = {m: {target(name) for name in imports(m, at_load=True)} - {None, m} for m in FILES}
    return {m: {str(name) for name in names} for m, names in found.items()}


FLOORS = """
record       errors
stores       record
seams        record; types: tools
tools        errors record stores seams
parse
masking
model        errors record masking seams ambient
loop         errors record stores tools parse seams ambient
trace        errors record stores tools parse masking loop seams ambient version
export       errors record model trace version
tracing      errors record masking seams trace export ambient
result       record masking trace; types: tracing
conversation errors record stores tools loop seams tracing result
agent        errors record tools model loop seams conversation result; types: stores
testing      model seams

readers      errors record trace
play         errors record masking stores tools model loop seams trace agent result tracing readers
importers    errors record parse masking loop trace version play readers
loading      errors record masking play readers importers
report       errors record seams trace export version play readers
explain      errors record masking trace play readers report
wire         errors record masking seams trace tracing export model play readers report
suite        errors record masking tracing agent result play readers loading report explain wire
plugin       suite; types: play wire
cli          errors record masking loop trace tracing agent result version play readers importers loading report explain wire suite
"""
"""Which rooms each room may import, read from the bottom up: all that a line names stands above it, but for `types`.

`door`, which every room has, `files`, which all that keep some use, and the packages `kernel` and `replay` themselves,
which only open others, are left out.
"""


def floors() -> dict[str, tuple[set[str], set[str]]]:
    table: dict[str, tuple[set[str], set[str]]] = {}
    for line in filter(None, FLOORS.splitlines()):
        name, _, rest = line.partition(" ")
        loaded, _, types = rest.partition("; types:")
        table[name] = set(loaded.split()), set(types.split())
    return table


def rooms_named_in(module: str, *, types: bool) -> set[str]:
    """The rooms that a module imports: wherever it does, or only for the type checker."""
    everywhere = set(imports(module, at_load=False))
    checked: set[str] = set()
    for node in ast.walk(tree(module)):
        if is_type_checking(node):
            checked |= {
                f"{inner.module}.{alias.name}"
                for inner in ast.walk(node)
                if isinstance(inner, ast.ImportFrom)
                for alias in inner.names
            }
    found = {target(name) for name in (checked if types else everywhere - checked)} - {None}
    names = {str(name).split(".")[1] for name in found if "." in str(name)}
    return names - {module.split(".")[1], "door", "files"}


def test_the_floors_have_no_circle() -> None:
    below: set[str] = {"errors", "ambient", "version"}
    for name, (loaded, _) in floors().items():
        assert loaded <= below, f"{name} imports {loaded - below}, which stand on its own floor or above"
        below.add(name)


def test_each_room_imports_what_its_floor_allows_and_the_table_names_no_more() -> None:
    """Imports inside functions count: no circle is hidden there."""
    seen: dict[str, tuple[set[str], set[str]]] = {name: (set(), set()) for name in floors()}
    for module in FILES:
        if module.count(".") and (module not in DOORS):
            name = module.split(".")[1]
            loaded, types = seen.setdefault(name, (set(), set()))
            loaded |= rooms_named_in(module, types=False)
            types |= rooms_named_in(module, types=True)
    tidy = {name: (loaded, types - loaded) for name, (loaded, types) in seen.items()}
    for leaf in ("errors", "files", "ambient", "version", "door"):
        assert tidy.pop(leaf) == (set(), set())
    assert tidy == floors()


@pytest.mark.parametrize("package", DOORS)
def test_a_door_offers_to_programs_what_it_offers_to_type_checkers(package: str) -> None:
    opened: dict[str, str] = {}
    for node in ast.walk(tree(package)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "door":
            for keyword in node.keywords:
                opened |= dict.fromkeys(ast.literal_eval(keyword.value).split(), f"{package}.{keyword.arg}")
    assert opened == home(package)
    module = import_module(package)
    assert all(getattr(module, name) is getattr(import_module(behind), name) for name, behind in opened.items())


def test_rooms_are_entered_by_their_doors() -> None:
    """Outside a room only its `__init__` is named, but for a module that is used as a whole (`semconv as sc`)."""
    wrong = [
        (m, name)
        for m in FILES
        if m not in DOORS
        for name in imports(m, at_load=False)
        for package in [".".join(name.split(".")[:2])]
        if package in DOORS and not m.startswith(f"{package}.") and name.count(".") > 2
    ]
    assert wrong == []


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """One cycle for each module that can reach itself by a shortest way."""
    found: dict[frozenset[str], list[str]] = {}
    for start in graph:
        paths = [[start]]
        seen: set[str] = set()
        while paths:
            path = paths.pop(0)
            for after in sorted(graph[path[-1]]):
                if after == start:
                    found.setdefault(frozenset(path), [*path, start])
                elif after not in seen:
                    seen.add(after)
                    paths.append([*path, after])
    return list(found.values())


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert [" → ".join(cycle) for cycle in cycles(arrows())] == []


def test_a_planted_cycle_would_be_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c", "a"]]


@pytest.mark.parametrize(
    ("package", "allowed"),
    [
        ("opentelemetry.sdk", ("kernel.export",)),
        ("opentelemetry.exporter", ()),
        ("opentelemetry.proto", ("kernel.export", "replay.readers.otlp_proto")),
        (
            "aiohttp",
            (
                "kernel.model.openai",
                "kernel.model.endpoint",
                "replay.wire.listening",
                "replay.wire.gateway",
                "replay.wire.playing",
            ),
        ),
        ("aiohttp.web", ("replay.wire.listening", "replay.wire.gateway", "replay.wire.playing")),
        ("aiohttp.ClientSession", ("kernel.model.openai", "replay.wire.gateway")),
        ("socket", ("kernel.export",)),
        ("urllib.request", ("kernel.export", "replay.report.emit")),
        ("http.client", ("kernel.export",)),
        ("requests", ()),
        ("random", ("kernel.export",)),
        ("secrets", ()),
    ],
)
def test_only_the_modules_at_the_border_touch(package: str, allowed: tuple[str, ...]) -> None:
    wrong = [
        (m, name)
        for m in FILES
        for name in imports(m, at_load=False)
        if (name == package or name.startswith(f"{package}.")) and not m.startswith(allowed or ("-",))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "module", ["kernel", "kernel.agent", "kernel.loop.loop", "replay", "replay.play.recording", "replay.plugin"]
)
def test_importing_is_cheap(module: str) -> None:
    """Nothing heavy is loaded before it is used; the schema validator belongs to the first tool."""
    code = f"import {module}, sys; print(*sorted(m for m in sys.modules if m.partition('.')[0] in {HEAVY!r}))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def strings(module: str) -> Iterator[tuple[int, str]]:
    """Every text in a module that is not a docstring."""
    documented: set[int] = set()
    for node in ast.walk(tree(module)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                documented.add(id(statement.value))
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.lineno, node.value


FOREIGN = ("kernel.trace.semconv", "replay.readers", "replay.importers")
EXPORT = ("kernel.export",)


def test_names_of_attributes_stand_in_one_module() -> None:
    """Readers of other frameworks' formats name those frameworks' attributes, and exporters their own metrics; nobody
    else spells one."""
    wrong = [
        f"{FILES[m].relative_to(ROOT)}:{line} {text!r}"
        for m in FILES
        if not m.startswith(FOREIGN + EXPORT)
        for line, text in strings(m)
        if text.startswith(("gen_ai.", "tracefirst.")) and " " not in text
    ]
    assert wrong == []


@pytest.mark.parametrize("package", ["kernel", "replay"])
def test_a_prompt_completes_what_a_package_offers(package: str) -> None:
    module = import_module(package)
    assert {*module.__all__} <= {*dir(module)}
