"""What lies in `deploy/` is well-formed, by the tools of those who will read it: `check.py`.

Dockerfile by hadolint; the unit by systemd; the chart by helm and Kubernetes' schemas, in several settings, and its queries by promtool;
KServe's resources by the classes of its own SDK, which know every field.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import kserve
import kubernetes.client
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
    ["tls.secret=digits-tls", "serviceMonitor.enabled=true"],
    ["tls.secret=digits-tls", "serviceMonitor.enabled=true", "serviceMonitor.tlsConfig.serverName=digits.ml.svc", "service.adminPort=0"],
    ["networkPolicy.scrapeFrom=null"],
]

# What cannot work is found out when the chart is rendered, and by what word.
REFUSED = [
    # Prometheus would be answered 401.
    (["serviceMonitor.enabled=true", "tokensSecret=tokens"], "serviceMonitor.tokenSecret.name"),
    # No probe would be answered: they would ask without TLS, or without a certificate of a client.
    (["config=[server]\ntls_certificate = 'cert.pem'\ntls_key = 'key.pem'"], "tls.secret"),
    (["config=server.tls_key = 'key.pem'"], "tls.secret"),
    (["tls.secret=digits-tls", "config=[server]\n  tls_client_ca = 'clients.pem'"], "tls_client_ca"),
]

# Of Prometheus as its operator runs it, beside which the autoscaler asks.
PROMETHEUS = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
    "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
}


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
    for settings, word in REFUSED:
        said = helm_template("demo", settings)
        assert said.returncode != 0 and word in said.stderr, f"{settings}\n{said.stdout}{said.stderr}"
    # A comment is no setting.
    assert helm_template("demo", ["config=# tls_client_ca = 'clients.pem'"]).returncode == 0
    for settings in SETTINGS:
        documents = rendered("demo", settings)
        own = [document for document in documents if document["kind"] not in FOREIGN]
        said = run(BIN / "kubernetes-validate", "--strict", "-", text=yaml.safe_dump_all(own))
        # An unknown kind is a warning only.
        assert said.count("passed for resource") == len(own) and "WARN" not in said, said
        kinds = {document["kind"] for document in documents}
        assert ("ScaledObject" in kinds) == any("autoscaling" in setting for setting in settings)
        deployment = next(document for document in own if document["kind"] == "Deployment")
        check_ports(documents, deployment, "service.adminPort=0" not in settings)
        check_drain(deployment)
        check_scrape(documents, "tokensSecret=tokens" in settings)
        check_operators(documents, settings)
        check_tls(documents, deployment, "tls.secret=digits-tls" in settings)
        print(f"  helm: {', '.join(sorted(kinds))}")
    for name in ("digits", "digits-canary", "d" * 50):
        check_autoscaling(name)


def helm_template(name, settings):
    sets = [word for setting in settings for word in ("--set", setting)]
    command = [BIN / "helm", "template", name, DEPLOY / "helm" / "uncork", "--namespace", "ml", *sets]
    return subprocess.run(command, capture_output=True, text=True)


def rendered(name, settings):
    done = helm_template(name, settings)
    assert done.returncode == 0, f"{settings}\n{done.stdout}{done.stderr}"
    return [document for document in yaml.safe_load_all(done.stdout) if document]


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
            assert {port["port"] for rule in document["spec"]["ingress"] for port in rule["ports"]} <= names
        elif document["kind"] == "ServiceMonitor":
            assert [endpoint["port"] for endpoint in document["spec"]["endpoints"]] == [asked]


def check_operators(documents, settings):
    """Whoever reaches the port for operators may load and unload models, where there are no tokens: Prometheus, and nobody else."""
    for document in documents:
        if document["kind"] == "NetworkPolicy":
            rules = document["spec"]["ingress"]
            allowed = [rule["from"] for rule in rules for port in rule["ports"] if port["port"] == "admin"]
            closed = {"service.adminPort=0", "networkPolicy.scrapeFrom=null"} & set(settings)
            assert allowed == ([] if closed else [[PROMETHEUS]]), allowed
            # An empty rule, and a namespace without labels, is the whole cluster.
            assert all(rule["from"] and {"namespaceSelector": {}} not in rule["from"] for rule in rules), rules


def check_tls(documents, deployment, has_tls):
    """Who asks by TLS is answered by TLS, and nobody else asks."""
    pod = deployment["spec"]["template"]
    container = pod["spec"]["containers"][0]
    schemes = {container[probe]["httpGet"].get("scheme", "HTTP") for probe in ("livenessProbe", "readinessProbe")}
    assert schemes == {"HTTPS" if has_tls else "HTTP"}, schemes
    assert pod["metadata"]["annotations"].get("prometheus.io/scheme") == ("https" if has_tls else None)
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    files = [variables.get(f"UNCORK_TLS_{part}") for part in ("CERTIFICATE", "KEY")]
    secrets = [volume["name"] for volume in pod["spec"]["volumes"] if volume.get("secret", {}).get("secretName") == "digits-tls"]
    paths = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] in secrets]
    assert files == ([f"{path}/{file}" for path in paths for file in ("tls.crt", "tls.key")] or [None, None]), files
    assert len(paths) == has_tls
    for document in documents:
        if document["kind"] == "ServiceMonitor":
            [endpoint] = document["spec"]["endpoints"]
            assert endpoint.get("scheme") == ("https" if has_tls else None), endpoint
            named = {"serverName": "digits.ml.svc"} if endpoint["port"] == "http" else {"insecureSkipVerify": True}
            assert endpoint.get("tlsConfig") == (named if has_tls else None), endpoint


def check_autoscaling(name):
    """Both queries, on made-up series: a release counts its own pods, its busiest version or pool, and no shadow."""
    documents = rendered(name, ["autoscaling.enabled=true"])
    scaled = next(document for document in documents if document["kind"] == "ScaledObject")
    own = [pod_name(name, random) for random in ("b2c4d", "x5z7w")]
    others = [pod_name(other, "k8m2n") for other in ("digits", "digits-canary", "digits-canary-2", "d" * 46, "e" * 50) if other != name]
    series = []
    for pod in own:
        series += [
            *busy(pod, 0, model="m", version="1"),
            *busy(pod, 0.4, model="m", version="2"),
            *busy(pod, 1, model="m", version="3"),
            counter("uncork_shadow_copies_total", 60, pod=pod, model="m", version="3", outcome="answered"),
            *busy(pod, 0.25, model="one", version="1", pool="cpu"),
            *busy(pod, 0.25, model="two", version="1", pool="cpu"),
            counter("uncork_requests_total", 120, pod=pod, model="m", version="1", outcome="shed"),
            counter("uncork_requests_total", 60, pod=pod, model="m", version="1", outcome="full"),
            counter("uncork_requests_total", 600, pod=pod, model="m", version="1", outcome="on_time"),
        ]
    for pod, namespace in [*((pod, "ml") for pod in others), (own[0], "elsewhere")]:
        series += busy(pod, 1, namespace=namespace, model="m", version="2")
        series += [counter("uncork_requests_total", 6000, namespace=namespace, pod=pod, model="m", version="1", outcome="shed")]
    queries = [trigger["metadata"]["query"] for trigger in scaled["spec"]["triggers"]]
    wanted = [2 * 0.5, 2 * 3]
    asked = [
        {"expr": f"round({query}, 0.0001)", "eval_time": "10m", "exp_samples": [{"labels": "{}", "value": value}]}
        for query, value in zip(queries, wanted, strict=True)
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:  # JSON is YAML
        test = {"name": name, "interval": "5s", "input_series": series, "promql_expr_test": asked}
        json.dump({"rule_files": [], "tests": [test]}, file)
        file.flush()
        run("promtool", "test", "rules", file.name)
    print(f"  autoscaling: {name}")


def pod_name(deployment, random):
    """As Kubernetes makes it: what is too long loses its end, the hyphen too, before five letters are added."""
    return f"{deployment}-5d4f8c9b7x-"[:58] + random


def labelled(metric, namespace="ml", **labels):
    labels = {"namespace": namespace, "instance": f"{namespace}/{labels['pod']}", **labels}
    named = ", ".join(f'{name}="{label}"' for name, label in labels.items())
    return f"{metric}{{{named}}}"


def counter(metric, growth, **labels):
    """One that grows by so much in a minute."""
    return {"series": labelled(metric, **labels), "values": f"0+{growth / 12}x120"}


def busy(pod, share, **labels):
    """A runner that is busy for this share of its time."""
    return [
        counter("uncork_runner_busy_seconds_total", 60 * share, pod=pod, **labels),
        {"series": labelled("uncork_runners", pod=pod, **labels), "values": "1x120"},
    ]


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
