"""The deployments of tools/deploy and docs/OPERATIONS.md, against the programs that they speak of.

Every metric and label of an alert or a panel is one that the daemon has, every flag one that the program
takes, and every alert has its section. Where promtool is installed it reads the rules, too.
"""

import configparser
import json
import pathlib
import re
import shutil
import subprocess
import unittest

from deploy_files import DEPLOY, alerts, dashboard, documents, expressions, kind, panels
from support import BIN, SOURCE, ProcessTest

PACKAGING = SOURCE / "tools/packaging"
# Metrics and labels that Prometheus adds to what it scrapes.
OF_PROMETHEUS = {"up": {"job", "instance"}}
LABELS_OF_PROMETHEUS = {"job", "instance", "le"}
SUFFIXES = {"counter": ["_total"], "gauge": [""], "info": ["_info"], "histogram": ["_bucket", "_sum", "_count"]}


def metrics_of(expression):
    """Pairs of a metric and the labels that are asked of it, by matchers or for groups."""
    text = re.sub(r'"[^"]*"', '""', expression)
    groups = {label for part in re.findall(r"\b(?:by|on|without|group_left)\s*\(([^)]*)\)", text)
              for label in re.findall(r"\w+", part)}
    for name, matchers in re.findall(r"\b((?:specd:\w+|up))\b(?:\{([^}]*)\})?", text):
        yield name, set(re.findall(r"(\w+)\s*[=!]", matchers)), groups


class DeployTest(ProcessTest):
    @classmethod
    def setUpClass(cls):
        described = subprocess.run([BIN / "specctl", "describe"], capture_output=True, text=True, check=True).stdout
        cls.metrics = dict(OF_PROMETHEUS)
        for name, type_, labels in re.findall(r"^\| `(specd:\w+)` +\| (\w+) +\| ([\w, ]*?) *\|", described, re.MULTILINE):
            for suffix in SUFFIXES[type_]:
                cls.metrics[name + suffix] = set(labels.split(", ")) - {""} | LABELS_OF_PROMETHEUS

    def flags_of(self, program):
        if not hasattr(self, "known_flags"):
            self.known_flags = {}
        if program not in self.known_flags:
            said = self.run_to_end(program, "--help")
            self.known_flags[program] = set(re.findall(r"^ *--(\w+) \(", said.stdout + said.stderr, re.MULTILINE))
            self.assertIn("counters", self.known_flags[program])
        return self.known_flags[program]

    def check_flags(self, program, words):
        for word in words:
            found = re.fullmatch(r"--(\w+)(=.*)?", word)
            self.assertIsNotNone(found, word)
            self.assertIn(found[1], self.flags_of(program) | {"flagfile"}, program)

    def test_every_metric_and_label_is_one_that_the_daemon_has(self):
        self.assertGreater(len(self.metrics), 40)
        num_metrics = 0
        for place, expression in expressions():
            asked = list(metrics_of(expression))
            self.assertTrue(asked, f"{place}: {expression}")
            for name, matchers, _ in asked:
                num_metrics += 1
                self.assertIn(name, self.metrics, place)
                self.assertLessEqual(matchers, self.metrics[name], f"{place}: {name}")
            of_any = set().union(*(self.metrics[name] for name, _, _ in asked))
            self.assertLessEqual(asked[0][2], of_any, place)
        self.assertGreater(num_metrics, 60)

    def test_summaries_and_legends_name_labels_that_are_there(self):
        for rule in alerts():
            for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
                for name, _, groups in metrics_of(rule["expr"]):
                    self.assertIn(label, groups or self.metrics[name] | LABELS_OF_PROMETHEUS, rule["alert"])
        for panel in panels():
            for target in panel["targets"]:
                for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                    for name, _, groups in metrics_of(target["expr"]):
                        self.assertIn(label, groups or self.metrics[name] | LABELS_OF_PROMETHEUS, panel["title"])

    def test_every_alert_has_its_section_and_every_section_its_alert(self):
        text = (SOURCE / "docs/OPERATIONS.md").read_text()
        headings = re.findall(r"^### (Specd\w+)$", text, re.MULTILINE)
        self.assertEqual(headings, [rule["alert"] for rule in alerts()])
        for rule in alerts():
            self.assertIn(rule["labels"]["severity"], ("page", "ticket"))

    def test_the_dashboard_is_one_that_grafana_reads(self):
        board = dashboard()
        ids = [panel["id"] for panel in board["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        taken = set()
        for panel in board["panels"]:
            place = panel["gridPos"]
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                     for y in range(place["y"], place["y"] + place["h"])}
            self.assertFalse(cells & taken, panel["title"])
            self.assertLessEqual(place["x"] + place["w"], 24, panel["title"])
            taken |= cells
        variables = {each["name"] for each in board["templating"]["list"]}
        used = set(re.findall(r"\$\{?(\w+)", json.dumps(board))) - {"__all", "__rate_interval"}
        self.assertEqual(used, variables)
        for panel in panels():
            self.assertTrue(panel["description"], panel["title"])

    def test_every_flag_is_one_that_the_program_takes(self):
        folders = (DEPLOY / "kubernetes/base", DEPLOY / "kubernetes/gpu")
        for folder in folders:
            for name, text in kind(folder / "flags.yaml", "ConfigMap")["data"].items():
                self.check_flags(name.removesuffix(".flags"), text.split())
        for path in PACKAGING.glob("*.flags"):
            # Those that are commented out are offers.
            lines = [line.removeprefix("# ") for line in path.read_text().splitlines()]
            self.check_flags(path.stem, [line for line in lines if line.startswith("--")])
        of_units = {}
        for path in PACKAGING.glob("*.service"):
            unit = configparser.ConfigParser(strict=False, interpolation=None)
            unit.read(path)
            program, *flags = unit["Service"]["ExecStart"].split()
            of_units[pathlib.Path(program).name] = flags
            self.check_flags(pathlib.Path(program).name, flags)
        image = dict(re.findall(r"^(ENTRYPOINT|CMD|VOLUME) (.*)$", (SOURCE / "Dockerfile").read_text(), re.MULTILINE))
        (program,) = json.loads(image["ENTRYPOINT"])
        self.assertEqual(json.loads(image["CMD"]), of_units[program])
        document = (SOURCE / "docs/OPERATIONS.md").read_text()
        for program, flags in re.findall(r"^(?:sudo )?(specd(?:-http|ctl)?|specctl)((?: +[^#\n|]*)?)", document,
                                         re.MULTILINE):
            for flag in re.findall(r" --(\w+)", flags):
                self.assertIn(flag, self.flags_of(program) | {"flagfile"}, document)

    def test_the_pods_folders_and_ports_are_those_of_the_flags(self):
        folder = DEPLOY / "kubernetes/base"
        pod = kind(folder / "daemonset.yaml", "DaemonSet")["spec"]["template"]
        flags = kind(folder / "flags.yaml", "ConfigMap")
        volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
        containers = {each["name"]: each for each in pod["spec"]["containers"]}
        for container in [*containers.values(), *pod["spec"]["initContainers"]]:
            for mount in container["volumeMounts"]:
                self.assertIn(mount["name"], volumes)
        # Both programs and the engines of the node see one folder, at the path of the default flags.
        default = re.search(r"--listen .*?default: \"unix:(.*?)\"", self.run_to_end("specd", "--help").stdout, re.DOTALL)
        sockets = str(pathlib.PurePath(default[1]).parent)
        self.assertEqual(volumes["sockets"]["hostPath"]["path"], sockets)
        self.assertEqual(pod["spec"]["initContainers"][0]["command"][-1], sockets)
        for name, program in (("specd", "specd"), ("http", "specd-http")):
            mounts = {each["name"]: each["mountPath"] for each in containers[name]["volumeMounts"]}
            self.assertEqual(mounts["sockets"], sockets)
            command = containers[name]["command"]
            self.assertEqual(command, [program, f"--flagfile={mounts['flags']}/{program}.flags"])
            self.assertIn(f"{program}.flags", flags["data"])
            self.assertIn(f"=unix:{default[1]}\n", flags["data"][f"{program}.flags"])
        self.assertEqual(volumes["flags"]["configMap"]["name"], flags["metadata"]["name"])
        http = containers["http"]
        token = [each["mountPath"] for each in http["volumeMounts"] if each["name"] == "token"]
        self.assertIn(f"--token_file={token[0]}/token\n", flags["data"]["specd-http.flags"])
        port = http["ports"][0]
        self.assertIn(f":{port['containerPort']}\n", flags["data"]["specd-http.flags"])
        # Only the daemon's own death ends its container: a probe would go through specd-http.
        self.assertNotIn("livenessProbe", containers["specd"])
        self.assertEqual(http["readinessProbe"]["httpGet"], {"path": "/ready", "port": port["name"]})
        service = kind(folder / "service.yaml", "Service")
        monitor = kind(folder / "servicemonitor.yaml", "ServiceMonitor")["spec"]
        self.assertEqual(service["spec"]["ports"][0]["targetPort"], port["name"])
        self.assertEqual(service["spec"]["selector"], pod["metadata"]["labels"])
        self.assertEqual(monitor["selector"]["matchLabels"], service["metadata"]["labels"])
        self.assertEqual(monitor["endpoints"][0]["port"], service["spec"]["ports"][0]["name"])
        self.assertEqual(monitor["endpoints"][0]["authorization"]["credentials"],
                         {"name": volumes["token"]["secret"]["secretName"], "key": "token"})
        # The alert on `up` names the job by the label that the Service has.
        self.assertEqual(service["metadata"]["labels"][monitor["jobLabel"]], "specd")
        # The memory that the flag gives, and 128 MiB more, fit (docs/ARCHITECTURE.md, "Limits").
        memory = int(re.search(r"--memory_mib=(\d+)", flags["data"]["specd.flags"])[1])
        limit = containers["specd"]["resources"]["limits"]["memory"]
        self.assertLessEqual(memory + 128, int(limit.removesuffix("Gi")) * 1024)
        # Both images are one, of the version that this tree makes, and the user is the image's.
        version = re.search(r"project\(specd VERSION (\S+)", (SOURCE / "CMakeLists.txt").read_text())[1]
        images = {each["image"] for each in [*containers.values(), *pod["spec"]["initContainers"]]}
        self.assertEqual(images, {f"specd:{version}"})
        user = re.search(r"--uid (\d+)", (SOURCE / "Dockerfile").read_text())[1]
        self.assertEqual(pod["spec"]["securityContext"]["runAsUser"], int(user))

    def test_a_kustomization_names_every_file_and_patches_what_is_there(self):
        for folder in (DEPLOY / "kubernetes/base", DEPLOY / "kubernetes/gpu"):
            (kustomization,) = documents(folder / "kustomization.yaml")
            named = {each for each in kustomization["resources"] if each.endswith(".yaml")}
            # A folder that a kustomization stands in is refused as a cycle.
            bases = [folder / each for each in kustomization["resources"] if not each.endswith(".yaml")]
            for base in bases:
                self.assertTrue((base / "kustomization.yaml").is_file(), base)
                self.assertNotIn(base.resolve(), folder.resolve().parents)
            named |= {each["path"] for each in kustomization.get("patches", ())}
            self.assertEqual(named, {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"})
        for name, wanted in (("daemonset.yaml", "DaemonSet"), ("flags.yaml", "ConfigMap")):
            base = kind(DEPLOY / "kubernetes/base" / name, wanted)
            patch = kind(DEPLOY / "kubernetes/gpu" / name, wanted)
            self.assertEqual(patch["metadata"]["name"], base["metadata"]["name"])
        pods = [kind(DEPLOY / "kubernetes" / name, "DaemonSet")["spec"]["template"]["spec"]
                for name in ("base/daemonset.yaml", "gpu/daemonset.yaml")]
        known = {each["name"] for each in pods[0]["containers"]}
        for container in pods[1]["containers"]:
            self.assertIn(container["name"], known)
            pipe = {each["name"]: each.get("value") for each in container["env"]}["CUDA_MPS_PIPE_DIRECTORY"]
            self.assertEqual([each["mountPath"] for each in container["volumeMounts"]], [pipe])

    def test_the_scrape_is_of_the_port_that_specd_http_listens_on(self):
        (config,) = documents(DEPLOY / "prometheus/prometheus.yaml")
        (scrape,) = config["scrape_configs"]
        listen = re.search(r"^--listen=(\S+)$", (PACKAGING / "specd-http.flags").read_text(), re.MULTILINE)[1]
        self.assertEqual(scrape["static_configs"][0]["targets"], [listen])
        self.assertEqual(scrape["job_name"], "specd")  # as the alert on `up` says
        for file in config["rule_files"]:
            self.assertTrue((DEPLOY / "prometheus" / file).is_file())

    def test_promtool_takes_rules_and_configuration(self):
        if shutil.which("promtool") is None:
            self.skipTest("promtool is not installed: ./tools/setup monitor")
        for words in (("rules", "alerts.yaml"), ("config", "prometheus.yaml")):
            done = subprocess.run(["promtool", "check", *words], cwd=DEPLOY / "prometheus", capture_output=True,
                                  text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_systemd_takes_the_units(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is not installed: apt-get install systemd")
        units = [*PACKAGING.glob("*.service"), *PACKAGING.glob("*.socket")]
        for unit in units:  # systemd reads them as installed; only the programs' folder differs
            (self.folder / unit.name).write_text(unit.read_text().replace("=/usr/bin/specd", f"={BIN}/specd"))
        done = subprocess.run(["systemd-analyze", "verify", *(self.folder / unit.name for unit in units)],
                              capture_output=True, text=True, check=False)
        # It also reads the machine's own units, and tells what is wrong there.
        told = [line for line in done.stderr.splitlines() if any(unit.name in line for unit in units)]
        self.assertEqual(told, [])
        self.assertTrue(done.returncode == 0 or done.stderr, done.returncode)


if __name__ == "__main__":
    unittest.main()
