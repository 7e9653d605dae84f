"""Reads the files of tools/deploy: manifests, alerts, and the panels of the dashboard."""

import json
import re

import yaml

from support import SOURCE

DEPLOY = SOURCE / "tools/deploy"


def documents(path):
    return [each for each in yaml.safe_load_all(path.read_text()) if each is not None]


def kind(path, wanted):
    (found,) = [each for each in documents(path) if each["kind"] == wanted]
    return found


def alerts():
    return [rule for group in documents(DEPLOY / "prometheus/alerts.yaml")[0]["groups"] for rule in group["rules"]]


def dashboard():
    return json.loads((DEPLOY / "grafana/specd.json").read_text())


def panels():
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions():
    """Pairs of a place and an expression of PromQL."""
    yield from ((rule["alert"], rule["expr"]) for rule in alerts())
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$__rate_interval", "1m")
    for variable in dashboard()["templating"]["list"]:
        if found := re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]):
            yield variable["name"], f'{found[1]}{{{found[2]}=~".*"}}'
