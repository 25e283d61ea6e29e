"""Checks the dashboards and the rules for what Grafana's dashboard-linter asks, and for links that lead nowhere.

    python dashboards/check/lint.py

dashboard-linter is a Go program and in no package registry, so its rules for Prometheus are written again here, under
its names for them. Added: every panel is described, no two panels share a place or an id, every metric is on the
dashboard, and descriptions, alerts and docs/operating.md name only panels and headings that exist.
"""

import re
import sys

import promql_parser
import yaml

import queries

# Grafana's variables stand for these while a query is parsed. The odd duration is there to be recognised in the tree.
RATE_INTERVAL = "0:12:34"
PARSED_WITH = {"__rate_interval": "754s", "__range": "1h", "__interval": "1m", "slo": "0.99"}
UNITS = {"none", "short", "percentunit", "s", "bytes", "reqps", "ops"}  # those of Grafana's list that are used here
DATASOURCE = "${datasource}"
RATES = {"rate", "irate"}
COUNTING = RATES | {"increase"}
DOCS = queries.FOLDER.parent / "docs"
OPERATING, METRICS = DOCS / "operating.md", DOCS / "metrics.md"


def of_variables(board):
    variables = {one["name"]: one for one in board["templating"]["list"]}
    source = variables.get("datasource")
    if (
        not source
        or source["type"] != "datasource"
        or source["label"] != "Data source"
        or source["query"] != "prometheus"
    ):
        yield "template-datasource-rule: there must be a variable 'datasource' of Prometheus, labelled 'Data source'"
    for name in ("job", "instance", "model"):
        one = variables.get(name)
        if not one:
            yield f"template-{name}-rule: there is no variable '{name}'"
            continue
        if one["datasource"].get("uid") != DATASOURCE or one["type"] != "query":
            yield f"template-{name}-rule: '{name}' must be a query to the data source {DATASOURCE}"
        if one["label"] != name.title() or not one["multi"] or one["allValue"] != ".+":
            yield (
                f"template-{name}-rule: '{name}' must be labelled '{name.title()}', take several values, and mean .+"
                " by All"
            )
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", one["query"])
        if not found or found[2] != name or not is_promql(found[1]):
            yield f"template-label-promql-rule: '{name}' must ask for label_values(a selector, {name})"
    for name, one in variables.items():
        if one["type"] == "query" and one["refresh"] != 2:
            yield f"template-on-time-change-reload-rule: '{name}' must be refreshed when the time range changes (2)"


def is_promql(expr):
    try:
        queries.parsed(queries.replaced(expr, PARSED_WITH))
        return True
    except ValueError:
        return False


def of_panel(panel):
    if not panel.get("title") or not panel.get("description"):
        yield "panel-title-description-rule: a title and a description are missing"
    elif len(panel["description"]) < 60:
        yield "its description does not say what to do with it"
    if panel["datasource"].get("uid") != DATASOURCE:
        yield f"panel-datasource-rule: the data source must be {DATASOURCE}"
    if not panel["targets"]:
        yield "panel-no-targets-rule: no query"
    unit = panel["fieldConfig"]["defaults"].get("unit")
    if unit not in UNITS:
        yield f"panel-units-rule: the unit '{unit}' is not one of {', '.join(sorted(UNITS))}"
    for target in panel["targets"]:
        for wrong in of_query(target["expr"]):
            yield f"query {target['refId']}: {wrong}"
        if not target.get("legendFormat"):
            yield f"query {target['refId']}: no legend"


def of_query(expr):
    try:
        tree = queries.parsed(queries.replaced(expr, PARSED_WITH))
    except ValueError as error:
        yield f"target-promql-rule: {error}"
        return
    for node, above in queries.parts(tree):
        call = next((one for one in reversed(above) if not isinstance(one, promql_parser.MatrixSelector)), None)
        function = call.func.name if isinstance(call, promql_parser.Call) else None
        if isinstance(node, promql_parser.MatrixSelector) and function in RATES and str(node.range) != RATE_INTERVAL:
            yield f"target-rate-interval-rule: {function}() must be over [$__rate_interval]"
        if isinstance(node, promql_parser.VectorSelector):
            ranged = above and isinstance(above[-1], promql_parser.MatrixSelector)
            if re.search(r"_(total|bucket|sum|count)$", node.name) and not (ranged and function in COUNTING):
                yield f"target-counter-agg-rule: {node.name} must be inside rate or increase"
            matchers = [(one.name, one.value) for one in node.matchers.matchers if one.op == promql_parser.MatchOp.Re]
            for name in ("job", "instance"):
                if (name, f"${name}") not in matchers:
                    yield f'target-{name}-rule: {node.name} lacks {name}=~"${name}"'
            # What is counted before a model is known has no model.
            without = node.name.startswith(("uncork_build_info", "uncork_http_", "uncork_repository_", "uncork_stale_files", "uncork_tls_", "uncork_turned_away_"))
            if node.name.startswith("uncork_") and not without:
                if ("model", "$model") not in matchers:
                    yield f'{node.name} lacks model=~"$model"'


def of_annotations(board):
    for one in board["annotations"]["list"]:
        if one["datasource"].get("uid") != DATASOURCE:
            yield f"annotation '{one['name']}': the data source must be {DATASOURCE}"
        for wrong in of_query(one["expr"]):
            yield f"annotation '{one['name']}': {wrong}"


def seconds(text):
    return int(text[:-1]) * {"s": 1, "m": 60}[text[-1]]


def of_refresh(board):
    """Nobody sees more by asking more often than Prometheus scrapes."""
    scraped = yaml.safe_load((queries.FOLDER / "prometheus.yml").read_text())["global"]["scrape_interval"]
    if seconds(board["refresh"]) < seconds(scraped):
        yield f"it is refreshed every {board['refresh']} and scraped every {scraped}"


def of_metrics(board):
    """The server's list of metrics, which its tests keep true, has none that the dashboard leaves out."""
    shown = " ".join(target["expr"] for panel in queries.panels(board) for target in panel["targets"])
    for name in re.findall(r"^\| `(uncork_\w+)` \| (?:histogram|counter|gauge) ", METRICS.read_text(), re.M):
        if not re.search(rf"\b{name}(?:_bucket|_sum|_count)?\b", shown):
            yield f"no panel shows {name}"


def of_layout(board):
    taken, ids = {}, set()
    for panel in board["panels"]:
        if panel["id"] in ids:
            yield f"'{panel['title']}': its id is used twice"
        ids.add(panel["id"])
        place = panel["gridPos"]
        if place["x"] + place["w"] > 24:
            yield f"'{panel['title']}' does not fit into 24 columns"
        for cell in (
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ):
            if cell in taken:
                yield f"'{panel['title']}' lies on '{taken[cell]}'"
                break
            taken[cell] = panel["title"]


def anchors(page):
    """The anchors that a Markdown page's headings get."""
    headings = re.findall(r"^#+ (.+)$", page, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def repository():
    """Where the sources are, as the package says."""
    return re.search(r'^repository = "(.+)"$', (DOCS.parent / "Cargo.toml").read_text(), re.M)[1]


def of_rules(rules, titles, page):
    known = anchors(page)
    for rule in (rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule):
        name, notes = rule["alert"], rule["annotations"]
        if rule["labels"].get("severity") not in ("page", "ticket"):
            yield f"{name}: severity must be page or ticket"
        if not notes.get("summary") or not notes.get("description"):
            yield f"{name}: a summary and a description are missing"
        for title in re.findall(r'"([A-Z][^"]+)"', notes["description"]):
            if title not in titles:
                yield f'{name} says to look at "{title}", and there is no such panel'
        file, _, anchor = notes["runbook_url"].rpartition("#")
        if file != f"{repository()}/blob/main/docs/operating.md" or anchor not in known:
            yield f"{name}: {notes['runbook_url']} leads nowhere"
        if name not in page:
            yield f"docs/operating.md does not mention {name}"


def of_provisioning(page):
    """Grafana's files are YAML, and look where docs/operating.md puts the dashboard."""
    folder = queries.FOLDER / "provisioning"
    [source] = yaml.safe_load((folder / "datasources" / "prometheus.yaml").read_text())["datasources"]
    [provider] = yaml.safe_load((folder / "dashboards" / "uncork.yaml").read_text())["providers"]
    if source["type"] != "prometheus":
        yield "provisioning: the data source must be Prometheus"
    if f"{provider['options']['path']} dashboards/uncork.json dashboards/fleet.json" not in page:
        yield (
            f"docs/operating.md does not put the dashboard into {provider['options']['path']}, where provisioning looks"
            " for it"
        )


def main():
    boards, rules, page = queries.dashboards(), yaml.safe_load(queries.RULES.read_text()), OPERATING.read_text()
    wrong = []
    for board in boards:
        found = [*of_variables(board), *of_layout(board), *of_annotations(board), *of_refresh(board)]
        if board["editable"]:
            found.append("uneditable-dashboard: editable must be false")
        for panel in queries.panels(board):
            found += [f"'{panel.get('title')}': {line}" for line in of_panel(panel)]
        wrong += [f"{board['title']}: {line}" for line in found]
    wrong += of_metrics(boards[0])
    wrong += of_provisioning(page)
    panels = [panel for board in boards for panel in queries.panels(board)]
    titles = {panel["title"] for panel in panels}
    wrong += of_rules(rules, titles, page)
    # The page quotes panels *like this*, the descriptions 'like this'.
    quoted = [("docs/operating.md", name) for name in re.findall(r"(?<!\*)\*([A-Z][^*\n]+)\*(?!\*)", page)]
    for panel in panels:
        quoted += [(f"'{panel['title']}'", name) for name in re.findall(r"'([A-Z][^']+)'", panel["description"])]
    headings = set(re.findall(r"^#+ (.+)$", page, re.M))
    wrong += [
        f"{where} speaks of '{name}', and there is no such panel"
        for where, name in quoted
        if name not in titles | headings
    ]
    if wrong:
        sys.exit("\n".join(f"  {line}" for line in wrong))
    print(
        f"  {len(titles)} panels and {sum(len(panel['targets']) for panel in panels)} queries keep"
        " dashboard-linter's rules; the alerts lead somewhere"
    )


if __name__ == "__main__":
    main()
