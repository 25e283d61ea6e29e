"""The dashboard's panels and queries as the checks see them: variables replaced, PromQL parsed."""

import json
import pathlib
import re

import promql_parser

FOLDER = pathlib.Path(__file__).resolve().parent.parent
DASHBOARD, FLEET = FOLDER / "uncork.json", FOLDER / "fleet.json"
RULES = FOLDER / "rules" / "uncork.yml"


def dashboard(path=DASHBOARD):
    return json.loads(path.read_text())


def dashboards():
    """The one of a model's details, and that of the fleet."""
    return [dashboard(path) for path in (DASHBOARD, FLEET)]


def panels(board):
    """All panels but the rows, those in collapsed rows too."""
    for one in board["panels"]:
        yield from one.get("panels", [])
        if one["type"] != "row":
            yield one


def replaced(expr, values):
    """The query as Grafana would send it. What no value is given for stays, and the parser will say so."""
    for name, value in sorted(values.items(), key=lambda item: -len(item[0])):
        expr = re.sub(rf"\$(?:{name}\b|\{{{name}\}})", lambda _: value, expr)
    return expr


def parts(node, above=()):
    """Each node of a parsed query with the nodes above it, outermost first."""
    yield node, above
    for name in ("lhs", "rhs", "expr", "param", "args", "vector_selector"):
        below = getattr(node, name, None)
        for one in below if isinstance(below, list) else [below]:
            if one is not None and type(one).__module__.startswith("promql_parser"):
                yield from parts(one, (*above, node))


def parsed(expr):
    """The tree of a query; ValueError if it is not PromQL."""
    return promql_parser.parse(expr)
