"""The stub of the native module says what the module has: names, parameters and their defaults."""

import ast
import re
from pathlib import Path

import pytest
from scheduler_steps import REPOSITORY

from spyre_inference import _native

STUB = ast.parse((REPOSITORY / "python" / "spyre_inference" / "_native.pyi").read_text())


def described(node: ast.Module | ast.ClassDef) -> dict[str, ast.stmt]:
    found: dict[str, ast.stmt] = {}
    for part in node.body:
        if isinstance(part, ast.FunctionDef | ast.ClassDef):
            found[part.name] = part
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            found[part.target.id] = part
    return found


def public(thing: object) -> set[str]:
    return {name for name in vars(thing) if not name.startswith("_")}


CLASSES = {name: node for name, node in described(STUB).items() if isinstance(node, ast.ClassDef)}


def test_the_module_has_the_names_of_the_stub():
    assert public(_native) == set(described(STUB))


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_has_the_members_of_the_stub(name):
    assert public(getattr(_native, name)) == {member for member in described(CLASSES[name]) if member != "__init__"}


def functions():
    for name, node in described(STUB).items():
        if isinstance(node, ast.FunctionDef):
            yield pytest.param(getattr(_native, name), node, id=name)
    for owner, parent in CLASSES.items():
        for name, node in described(parent).items():
            if isinstance(node, ast.FunctionDef) and not node.decorator_list:
                yield pytest.param(getattr(getattr(_native, owner), name), node, id=f"{owner}.{name}")


@pytest.mark.parametrize(("function", "node"), list(functions()))
def test_a_function_has_the_parameters_of_the_stub(function, node):
    """nanobind writes a signature into the first line of the documentation: name(self, a: type, b: type = default)."""
    (signature,) = re.findall(r"\((.*)\) -> ", function.__doc__.splitlines()[0])
    without_types = re.sub(r": [\w.| ]*\w", "", signature)
    written = ast.parse(f"def f({without_types}): ...").body[0].args
    given = node.args
    assert [arg.arg for arg in written.args] == [arg.arg for arg in given.args]
    assert [ast.unparse(value) for value in written.defaults] == [ast.unparse(value) for value in given.defaults]


def test_the_stub_lies_beside_the_module():
    assert (Path(_native.__file__).parent / "_native.pyi").is_file()
