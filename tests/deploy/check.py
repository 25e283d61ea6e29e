"""What lies in `deploy/` is well-formed, by the tools of those who will read it: `check.py`.

Dockerfile by hadolint; the unit by systemd; the chart by helm and Kubernetes' schemas, in several settings; KServe's resources by the
classes of its own SDK, which know every field.
"""

import re
import subprocess
import sys
from pathlib import Path

import kserve
import kubernetes.client
import promql_parser
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
# Most that `systemd-analyze security` may say: 10 is all, 0 is nothing.
EXPOSURE = 2.0
# Of operators: Kubernetes itself has no schema for them.
FOREIGN = {"ScaledObject", "ServiceMonitor"}

SETTINGS = [
    [],
    ["autoscaling.enabled=true", "serviceMonitor.enabled=true", "tokensSecret=tokens", "serviceMonitor.tokenSecret.name=scrape"],
    ["modelsVolume.persistentVolumeClaim.claimName=models", "podDisruptionBudget.enabled=false"],
    ["networkPolicy.from[0].podSelector.matchLabels.app=web", "image.tag=1.2.3", "service.port=9000"],
    ["service.adminPort=0", "serviceMonitor.enabled=true"],
    ["config=[[model]]", "drain.timeoutMs=120000"],
]


def run(*command, text=None):
    done = subprocess.run(list(map(str, command)), input=text, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def check_dockerfile():
    run(BIN / "hadolint", DEPLOY / "Dockerfile")
    # What was built here must not be built on there: it may be linked against another libc.
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {"target", ".git"} <= set(ignored), ignored


def check_unit():
    said = run("systemd-analyze", "security", "--offline=yes", DEPLOY / "uncork.service")
    exposure = float(re.search(r"Overall exposure level for uncork.service: ([0-9.]+)", said)[1])
    assert exposure <= EXPOSURE, said
    print(f"  systemd: exposure {exposure}")


def check_chart():
    chart = DEPLOY / "helm" / "uncork"
    run(BIN / "helm", "lint", "--strict", chart)
    # A Prometheus that is answered 401 is found out now.
    refused = ["--set", "serviceMonitor.enabled=true", "--set", "tokensSecret=tokens"]
    said = subprocess.run([BIN / "helm", "template", "demo", chart, *refused], capture_output=True, text=True)
    assert said.returncode != 0 and "serviceMonitor.tokenSecret.name" in said.stderr, said.stderr
    for settings in SETTINGS:
        sets = [word for setting in settings for word in ("--set", setting)]
        rendered = run(BIN / "helm", "template", "demo", chart, "--namespace", "ml", *sets)
        documents = [document for document in yaml.safe_load_all(rendered) if document]
        own = [document for document in documents if document["kind"] not in FOREIGN]
        said = run(BIN / "kubernetes-validate", "--strict", "-", text=yaml.safe_dump_all(own))
        # An unknown kind is a warning only.
        assert said.count("passed for resource") == len(own) and "WARN" not in said, said
        kinds = {document["kind"] for document in documents}
        assert ("ScaledObject" in kinds) == any("autoscaling" in setting for setting in settings)
        for document in documents:
            if document["kind"] == "ScaledObject":
                for trigger in document["spec"]["triggers"]:
                    promql_parser.parse(trigger["metadata"]["query"])
        deployment = next(document for document in own if document["kind"] == "Deployment")
        check_ports(documents, deployment, "service.adminPort=0" not in settings)
        check_drain(deployment)
        check_scrape(documents, "tokensSecret=tokens" in settings)
        print(f"  helm: {', '.join(sorted(kinds))}")


def check_ports(documents, deployment, has_admin):
    """Probes and scrapes ask the port for operators where there is one, and every port that is named is there."""
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    names = {port["name"] for port in container["ports"]}
    assert names == ({"http", "admin"} if has_admin else {"http"}), names
    asked = "admin" if has_admin else "http"
    assert all(container[probe]["httpGet"]["port"] == asked for probe in ("livenessProbe", "readinessProbe"))
    assert any(variable["name"] == "UNCORK_ADMIN" for variable in container["env"]) == has_admin
    for document in documents:
        if document["kind"] == "Service":
            assert {port["targetPort"] for port in document["spec"]["ports"]} == names
        elif document["kind"] == "NetworkPolicy":
            rules = document["spec"]["ingress"]
            assert {port["port"] for rule in rules for port in rule["ports"]} == names
            # Prometheus is elsewhere, and asks the port for operators.
            assert not has_admin or rules[1]["from"] == [{"namespaceSelector": {}}], rules
        elif document["kind"] == "ServiceMonitor":
            assert [endpoint["port"] for endpoint in document["spec"]["endpoints"]] == [asked]


def check_scrape(documents, has_tokens):
    """Prometheus shows a token where callers need one."""
    for document in documents:
        if document["kind"] == "ServiceMonitor":
            shown = [endpoint.get("authorization") for endpoint in document["spec"]["endpoints"]]
            credentials = {"type": "Bearer", "credentials": {"name": "scrape", "key": "token"}}
            assert shown == [credentials if has_tokens else None], shown


def check_drain(deployment):
    """Kubernetes kills nobody who still drains, whatever the configuration is."""
    pod = deployment["spec"]["template"]["spec"]
    variables = {variable["name"]: variable["value"] for variable in pod["containers"][0]["env"]}
    delay, timeout = (int(variables[f"UNCORK_DRAIN_{part}_MS"]) for part in ("DELAY", "TIMEOUT"))
    grace = pod["terminationGracePeriodSeconds"]
    assert delay >= 5000 and grace * 1000 > delay + timeout, (grace, delay, timeout)


def check_kserve():
    for file, kind in (("serving-runtime.yaml", "V1alpha1ServingRuntime"), ("inference-service.yaml", "V1beta1InferenceService")):
        held_against(yaml.safe_load((DEPLOY / "kserve" / file).read_text()), kind, file)
        print(f"  kserve: {file}")


def held_against(value, kind, path):
    """Each field of `value` is one of the class `kind` of the SDK, or of Kubernetes' client."""
    listed = re.fullmatch(r"list\[(.+)\]", kind)
    if listed:
        assert isinstance(value, list), f"{path} must be a list"
        for i, item in enumerate(value):
            held_against(item, listed[1], f"{path}[{i}]")
        return
    known = getattr(kserve, kind, None) or getattr(kubernetes.client, kind, None)
    if known is None or not hasattr(known, "attribute_map"):
        plain = {"str": str, "int": int, "bool": bool}.get(kind)
        assert plain is None or isinstance(value, plain), f"{path} must be {kind}, and is {value!r}"
        return
    fields = {name: known.openapi_types[attribute] for attribute, name in known.attribute_map.items()}
    for name, item in value.items():
        assert name in fields, f"{path}.{name}: {kind} has no such field"
        held_against(item, fields[name], f"{path}.{name}")


def main():
    for check in (check_dockerfile, check_unit, check_chart, check_kserve):
        check()


if __name__ == "__main__":
    main()
