"""Runs every query of the dashboards and of the rules on a real Prometheus that scraped a real uncork under real load.

    python dashboards/check/live.py FOLDER [--binary target/release/uncork] [--seconds 40]

Each query must return numbers, and other numbers than 0 where the load sees to it. Each alert's expression must return
data when its thresholds are taken away, and the two that the load calls for must be raised.
"""

import argparse
import math
import pathlib
import re
import sys
import time

import promql_parser
import yaml

import queries
import stack

RATE_INTERVAL = "10s"  # ten scrapes
ALL = {
    "job": ".+",
    "instance": ".+",
    "model": ".+",
    "slo": "0.99",
    "__rate_interval": RATE_INTERVAL,
    "__interval": "1s",
}
# What must have numbers but may well be 0: nothing goes wrong here, and an idle queue is empty.
MAY_BE_ZERO = {
    "Error budget left (30 days)",
    "Age of the estimate",
    "Batches in flight",
    "Memory of models",
    "Worker processes",
    "Copies for shadows",
    "Reloads of the configuration",
    "Files that are out of date",
    "Time until the certificate expires",
    "Instances down",
    "Turned away by reason",
}
ALERT_S = 20  # scrapes and evaluations are a second apart
COMPARISONS = {"==", "!=", ">", "<", ">=", "<="}


def finite(series):
    return [value for _, values in series for value in values if math.isfinite(value)]


def answers(api, target, values, start, end):
    expr = queries.replaced(target["expr"], values)
    if target["instant"]:
        return [(labels, [value]) for labels, value in api.instant(expr, end)]
    return [(labels, [v for _, v in points]) for labels, points in api.range(expr, start, end)]


def of_panels(api, board, start, end):
    """What is wrong with the panels' answers: for all models together, and for each where its row is repeated."""
    span = {"__range": f"{max(1, round(end - start))}s"}
    models = sorted({labels["model"] for labels, _ in api.instant("uncork_max_latency_seconds", end)})
    repeated = False
    for panel in board["panels"]:
        if panel["type"] == "row":
            repeated = panel.get("repeat") == "model"
            continue
        for target in panel["targets"]:
            where = f"panel '{panel['title']}', query {target['refId']}"
            try:
                numbers = finite(answers(api, target, {**ALL, **span}, start, end))
                alone = (
                    [finite(answers(api, target, {**ALL, **span, "model": model}, start, end)) for model in models]
                    if repeated
                    else [numbers]
                )
            except ValueError as error:
                yield f"{where}: {error}"
                continue
            if not numbers:
                yield f"{where} returns no data"
            elif not any(numbers) and panel["title"] not in MAY_BE_ZERO:
                yield f"{where} returns nothing but 0"
            elif not any(any(values) or (values and panel["title"] in MAY_BE_ZERO) for values in alone):
                yield f"{where} returns no data for a single model"


def of_annotations(api, board, at):
    """Marks are where something began: their queries must be answered, be it with nothing."""
    for one in board["annotations"]["list"]:
        try:
            api.instant(queries.replaced(one["expr"], ALL), at)
        except ValueError as error:
            yield f"annotation '{one['name']}': {error}"


def of_variables(api, board):
    wanted = {"job": {"uncork"}, "model": set(stack.WIDTHS)}
    for one in board["templating"]["list"]:
        if one["type"] != "query":
            continue
        selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", one["query"]).groups()
        found = set(api.get(f"label/{label}/values", **{"match[]": queries.replaced(selector, ALL)}))
        if not found or found != wanted.get(one["name"], found):
            yield f"variable '{one['name']}' offers {sorted(found)}"


def without_thresholds(expr):
    """The expression of an alert with what makes it rare taken away: comparisons with numbers, and absent()."""
    bare = re.sub(r"(>=|<=|==|!=|>|<)\s*(bool\s+)?-?[\d.]+", "", expr)
    bare = re.sub(r"\babsent\(", "(", bare)
    for node, _ in queries.parts(queries.parsed(bare)):
        if isinstance(node, promql_parser.BinaryExpr) and str(node.op) in COMPARISONS:
            raise ValueError(f"a threshold is left in: {bare}")
    return bare


def of_rules(api, rules, at):
    for group in rules["groups"]:
        for rule in group["rules"]:
            name = rule.get("alert") or rule["record"]
            expr = without_thresholds(rule["expr"]) if "alert" in rule else rule["record"]
            try:
                if not finite([(labels, [value]) for labels, value in api.instant(expr, at)]):
                    yield f"rule {name} returns no data"
            except ValueError as error:
                yield f"rule {name}: {error}"
    for group in api.get("rules")["groups"]:
        for rule in group["rules"]:
            if rule["health"] != "ok":
                yield f"rule {rule['name']} is {rule['health']}: {rule.get('lastError', '')}"


def raised(api, name, **labels):
    """Whether an alert with these labels is pending or firing."""
    return any(
        one["labels"]["alertname"] == name and labels.items() <= one["labels"].items()
        for one in api.get("alerts")["alerts"]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="takes logs and Prometheus' data")
    parser.add_argument("--binary", default=stack.BINARY)
    parser.add_argument("--seconds", type=int, default=40, help="how long there is load (default 40)")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    boards, rules = queries.dashboards(), yaml.safe_load(queries.RULES.read_text())
    wrong = []
    with stack.uncork(arguments.folder, arguments.binary) as (server, address), stack.prometheus(
        arguments.folder, [address]
    ) as api:
        start = time.time()
        with stack.load(arguments.folder, address, arguments.seconds):
            stack.broken_version(arguments.folder)
        end = time.time()
        for board in boards:
            wrong += of_variables(api, board)
            wrong += of_panels(api, board, start, end)
            wrong += of_annotations(api, board, start + 1)
        wrong += of_rules(api, rules, end)
        if not raised(api, "UncorkBudgetBurnsFast", model="dry-run", severity="page"):
            wrong.append("a third of dry-run's requests were refused, and UncorkBudgetBurnsFast was not raised")
        if raised(api, "UncorkBudgetBurnsFast", model="digits"):
            wrong.append("UncorkBudgetBurnsFast was raised for digits, which had little to do")
        server.terminate()
        server.wait(30)
        end = time.monotonic() + ALERT_S
        while not raised(api, "UncorkDown", instance=address) and time.monotonic() < end:
            time.sleep(0.2)
        if time.monotonic() >= end:
            wrong.append(f"the server has ended, and UncorkDown was not raised within {ALERT_S} s")
    if wrong:
        sys.exit("\n".join(f"  {line}" for line in wrong))
    panels = [panel for board in boards for panel in queries.panels(board)]
    count = sum(len(panel["targets"]) for panel in panels)
    print(
        f"  {count} queries of {len(panels)} panels and"
        f" {sum(len(g['rules']) for g in rules['groups'])} rules returned data; UncorkBudgetBurnsFast and UncorkDown"
        " were raised"
    )


if __name__ == "__main__":
    main()
