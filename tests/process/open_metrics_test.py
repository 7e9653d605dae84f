"""The text of `specctl metrics`, read by the parser of Prometheus's own Python client.

The parser is strict: it refuses a family that stands in two places, a suffix that does not fit the type,
buckets that fall, a label that is there twice, and a text without its end.
"""

import json
import unittest

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from support import ProcessTest, TOKENIZER


class OpenMetricsTest(ProcessTest):
    def test_the_parser_reads_every_number(self):
        profile = self.folder / "m.json"
        profile.write_text(json.dumps({"tokenizer": str(TOKENIZER)}))
        daemon = self.daemon(f"--profile=qwen3={profile}")
        engine = self.engine("--prompt=The daemon", "--max_tokens=40", "--print=none")
        self.assertEqual(engine.wait(), 0, engine.stderr)
        total = json.loads(engine.stdout)["total"]
        flag = f"--counters={self.folder}/s.counters"
        stats = json.loads(self.run_to_end("specctl", "stats", "--json", flag).stdout)
        text = self.run_to_end("specctl", "metrics", flag).stdout
        families = {family.name: family for family in text_string_to_metric_families(text)}

        def samples(name, suffix="_total", **labels):
            return sum(sample.value for sample in families[name].samples if sample.name == name + suffix
                       and all(sample.labels.get(key) == value for key, value in labels.items()))

        self.assertEqual(samples("specd:spec_decode_num_accepted_tokens"), total["accepted"])
        self.assertEqual(samples("specd:spec_decode_num_draft_tokens"), total["drafts"])
        self.assertEqual(samples("specd:spec_decode_num_accepted_tokens_per_pos"), total["accepted"])
        self.assertEqual(samples("specd:kept_tokens"), total["tokens"])
        self.assertEqual(samples("specd:kept_tokens", model="qwen3"), 0)
        self.assertEqual(samples("specd:round_verify_seconds", "_count"), samples("specd:rounds"))
        self.assertEqual(families["specd:round_verify_seconds"].unit, "seconds")
        (identity,) = families["specd:daemon"].samples
        self.assertEqual(identity.labels["device"], "cpu")
        for each in stats["metrics"]:
            family = families[each["name"]]
            self.assertEqual(family.type, each["type"])
            self.assertTrue(family.documentation)
            if each["type"] == "gauge":
                self.assertIn((each["name"], each["labels"]), [(s.name, s.labels) for s in family.samples])
        self.assertFalse([sample for family in families.values() for sample in family.samples
                          if sample.name.endswith("_created") or "rid" in sample.labels])
        self.stop(daemon)


if __name__ == "__main__":
    unittest.main()
