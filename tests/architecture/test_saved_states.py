"""Every field of the server's shared state is restored with a saved state, ended by it, or kept: none is forgotten."""

import ast
from pathlib import Path

from mongottl.exec.operation.restoring import ENDED, KEPT, RESTORED

SERVICE = Path(__file__).resolve().parents[2] / "mongottl" / "exec" / "service" / "service.py"


def fields_of_the_service() -> set[str]:
    """The attributes that the methods of `ServiceContext` set."""
    tree = ast.parse(SERVICE.read_text(encoding="utf-8"))
    (service,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "ServiceContext")
    found = set()
    for node in ast.walk(service):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, (ast.AnnAssign, ast.AugAssign)):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                found.add(target.attr)
    return found


def test_every_field_of_the_service_has_its_place() -> None:
    fields = fields_of_the_service()
    assert len(fields) > 50
    placed = RESTORED | ENDED | KEPT
    assert fields - placed == set(), "to be added to one of the tables of exec/operation/restoring.py"
    assert placed - fields == set(), "in the tables of exec/operation/restoring.py, but no field any more"
    assert len(fields) == len(RESTORED) + len(ENDED) + len(KEPT), "a field is in two places"
