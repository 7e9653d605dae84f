"""A real Prometheus scrapes specd-http with the configuration, alerts and panels of tools/deploy.

It is Debian's package, `./tools/setup monitor`. Without it the test exits with 77, skipped.
"""

import json
import os
import shutil
import signal
import socket
import sys
import unittest
import urllib.parse
import urllib.request

import yaml

from deploy_files import DEPLOY, alerts, documents, expressions
from http_support import HttpCase
from support import PATIENCE_S, wait_until

WRONG_PLUGIN = os.environ["SPECD_WRONG_PLUGIN"]
TOKEN = "a-secret"


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class PrometheusTest(HttpCase):
    def setUp(self):
        super().setUp()
        self.wrong = self.folder / "wrong"
        token = self.folder / "token"
        token.write_text(TOKEN + "\n")
        self.running = self.daemon(f"--backend_plugin={WRONG_PLUGIN}", "--device=wrong_while", "--canary=1",
                                   env=os.environ | {"SPECD_WRONG_WHILE": str(self.wrong)})
        self.start_http(f"--token_file={token}", listen="0.0.0.0:0")
        self.start_prometheus(token)

    def start_prometheus(self, token):
        """The configuration of tools/deploy, with this test's port, its token, and shorter intervals."""
        (config,) = documents(DEPLOY / "prometheus/prometheus.yaml")
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        (scrape,) = config["scrape_configs"]
        scrape["static_configs"][0]["targets"] = [f"127.0.0.1:{self.port}"]
        scrape["authorization"] = {"credentials_file": str(token)}
        for name in config["rule_files"]:
            shutil.copy(DEPLOY / "prometheus" / name, self.folder)
        file = self.folder / "prometheus.yaml"
        file.write_text(yaml.safe_dump(config))
        self.origin = f"127.0.0.1:{free_port()}"
        prometheus = self.start(shutil.which("prometheus"), f"--config.file={file}",
                                f"--storage.tsdb.path={self.folder}/tsdb", f"--web.listen-address={self.origin}")
        wait_until(lambda: "ready to receive web requests" in prometheus.stderr or not prometheus.running(), "Prometheus")
        self.assertTrue(prometheus.running(), prometheus.stderr)

    def ask_prometheus(self, path, **values):
        url = f"http://{self.origin}/api/v1/{path}?{urllib.parse.urlencode(values)}"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            said = json.load(answer)
        self.assertEqual(said["status"], "success", said)
        return said["data"]

    def values(self, expression):
        return [float(each["value"][1]) for each in self.ask_prometheus("query", query=expression)["result"]]

    def state_of(self, alert):
        return {each["state"] for each in self.ask_prometheus("alerts")["alerts"]
                if each["labels"]["alertname"] == alert}

    def silent_panels(self):
        named = {rule["alert"] for rule in alerts()}
        shown = [expression.replace("$instance", ".*").replace("$model", ".*")
                 for place, expression in expressions() if place not in named]
        return [expression for expression in shown if not self.values(expression)]

    def test_it_scrapes_every_number_and_evaluates_every_expression(self):
        wait_until(lambda: self.values('up{job="specd"}') == [1], "the first scrape")
        engine = self.engine("--prompt=The daemon|A round", "--max_tokens=60", "--print=none")
        self.assertEqual(engine.wait(), 0, engine.stderr)
        total = json.loads(engine.stdout)["total"]
        wait_until(lambda: self.values("sum(specd:kept_tokens_total)") == [total["tokens"]], "the tokens")
        for name, wanted in (("spec_decode_num_draft_tokens", "drafts"), ("rounds", "rounds"),
                             ("spec_decode_num_accepted_tokens", "accepted")):
            self.assertEqual(self.values(f"sum(specd:{name}_total)"), [total[wanted]], name)
        printed = self.run_to_end("specctl", "metrics", f"--counters={self.socket}.counters").stdout
        names = {line.split("{")[0].split(" ")[0] for line in printed.splitlines() if not line.startswith("#")}
        scraped = set(self.ask_prometheus("label/__name__/values"))
        self.assertLessEqual(names, scraped)
        self.assertGreater(len(names), 40)
        (target,) = self.ask_prometheus("targets")["activeTargets"]
        self.assertEqual((target["health"], target["lastError"]), ("up", ""))
        rules = [rule for group in self.ask_prometheus("rules")["groups"] for rule in group["rules"]]
        self.assertEqual([rule["name"] for rule in rules], [rule["alert"] for rule in alerts()])
        for rule in alerts():
            self.values(rule["expr"])
        wait_until(lambda: all(rule["health"] == "ok" for group in self.ask_prometheus("rules")["groups"]
                               for rule in group["rules"]), "every rule to be evaluated")
        # Panels of a daemon that did something show something, once two scrapes have it. There were no
        # refusals, and these series appear with their first count.
        wait_until(lambda: not [each for each in self.silent_panels()
                                if "refused_" not in each and "bad_rows" not in each], "every panel to show something")
        self.assertEqual(self.state_of("SpecdCanaryFails") | self.state_of("SpecdDown"), set())
        self.stop(self.running)

    def test_alerts_fire_for_a_wrong_device_and_a_killed_daemon(self):
        wait_until(lambda: self.values("specd:canary_failing") == [0], "a right answer of the device")
        self.wrong.touch()
        wait_until(lambda: self.state_of("SpecdCanaryFails") == {"firing"}, "the alert")
        self.wrong.unlink()
        wait_until(lambda: self.state_of("SpecdCanaryFails") == set(), "the alert to end")
        self.running.signal(signal.SIGKILL)
        wait_until(lambda: self.state_of("SpecdDown") == {"pending"}, "the daemon to be missed")


if __name__ == "__main__":
    if shutil.which("prometheus") is None:
        print("skipped: there is no prometheus; ./tools/setup monitor installs it")
        sys.exit(77)
    unittest.main()
