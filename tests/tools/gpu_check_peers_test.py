"""peers.py of tools/gpu_check, with specd on a pretended GPU and a stand-in for torch
(tests/support/torch.py): what it runs, compares and writes, and nothing of how fast that is."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

SOURCE = pathlib.Path(os.environ["SPECD_SOURCE"])
SCRIPTS = SOURCE / "tools/gpu_check"
MODULES = [str(SOURCE / "tests/support"), str(SOURCE / "ipc/python")]
PATIENCE_S = 240
sys.path[:0] = [str(SCRIPTS), *MODULES]

import torch  # noqa: E402  the stand-in

import specd  # noqa: E402
import peers  # noqa: E402
import peers_samplers  # noqa: E402
import peers_specd  # noqa: E402

OTHERS = ["torch_greedy", "torch_softmax_multinomial", "torch_rejection"]
OURS = ["specd_greedy", "specd_sample", "specd_rejection"]
SMALL = ["--vocab=700", "--batch=3", "--draft=2", "--repeats=4"]


def run_script(*arguments, modules=None):
    """peers.py as `run` calls it: its process and what it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "peers.json"
        process = subprocess.run(
            [sys.executable, "-B", SCRIPTS / "peers.py", "--out", out, *arguments], text=True,
            env={"SPECD_LIBRARY": os.environ["SPECD_LIBRARY"],
                 "PYTHONPATH": ":".join(MODULES if modules is None else modules)},
            capture_output=True, timeout=PATIENCE_S, check=False)
        return process, out.read_text() if out.exists() else ""


def run_here(*arguments):
    """The same in this process, where parts of it can be replaced: its exit status, what it printed
    and what it wrote."""
    with tempfile.TemporaryDirectory() as folder, \
            contextlib.redirect_stdout(io.StringIO()) as printed:
        out = pathlib.Path(folder) / "peers.json"
        code = peers.run(peers.parse(["--out", str(out), *arguments]))
        return code, printed.getvalue(), json.loads(out.read_text())


class GridTest(unittest.TestCase):
    def test_specd_and_the_others_take_the_same_rows_in_a_graph_and_have_ratios(self):
        process, text = run_script(*SMALL, "--dtype=fp32,bf16")
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        report = json.loads(text)
        self.assertEqual(report["specd"], specd.version())
        self.assertEqual([peer["name"] for peer in report["peers"]], OURS + OTHERS)
        self.assertEqual({peer["difference"] for peer in report["peers"]}, {""})
        self.assertTrue(all(peer["checked"] for peer in report["peers"]))
        results = report["results"]
        self.assertEqual([(r["peer"], r["dtype"], r["state"]) for r in results],
                         [(name, dtype, state) for dtype in ("fp32", "bf16")
                          for name in OURS + OTHERS for state in ("cold", "warm")])
        for result in results:
            with self.subTest(result["peer"], dtype=result["dtype"], state=result["state"]):
                ours = result["peer"] in OURS
                # Neither the writing over the caches nor a run before is in a time.
                self.assertEqual(result["median_us"], torch.SPECD_US if ours else torch.REPLAY_US)
                self.assertEqual(result["ratio"], 1 if ours else 4)
                kind = {"torch_greedy": "greedy", "torch_softmax_multinomial": "sample",
                        "torch_rejection": "rejection"}
                base = result["peer"] if ours else f"specd_{kind[result['peer']]}"
                self.assertEqual(result["ratio_of"], base)
                self.assertTrue(result["graph"])
                self.assertEqual((result["repeats"], result["checked"]), (4, 12))
                self.assertEqual(result["difference"], "")
                self.assertNotIn("target", result)
                if result["kind"] == "greedy":
                    self.assertEqual(result["mean_accepted"], result["expected_accepted"])
        # Drafts are accepted in some places, and rejected in others.
        self.assertTrue(any(0 < r["mean_accepted"] < 2 for r in results))
        # A reader without JSON takes lines.
        lines = [line for line in text.splitlines() if '"median_us"' in line]
        self.assertEqual([json.loads(line.rstrip(",")) for line in lines], results)
        self.assertTrue(process.stdout.splitlines()[-1].startswith("24 results of specd_greedy, "))

    def test_without_specd_the_others_are_timed_and_have_no_ratio(self):
        process, text = run_script(*SMALL, "--dtype=fp16", modules=MODULES[:1])
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        report = json.loads(text)
        self.assertIsNone(report["specd"])
        self.assertIn("No module named 'specd'", report["missing"][0])
        self.assertEqual([r["peer"] for r in report["results"][::2]], OTHERS)
        self.assertFalse(any("ratio" in result for result in report["results"]))

    def test_on_a_cpu_everybody_but_specd_is_compared(self):
        code, printed, report = run_here("--check")
        self.assertEqual(code, 0, printed)
        self.assertEqual([peer["name"] for peer in report["peers"]], OTHERS)
        self.assertEqual(report["results"], [])
        self.assertIn("not here: specd: ", printed)


class DifferenceTest(unittest.TestCase):
    """Answers that are wrong are found, in the small rows and in those that are timed."""

    def differences(self, peer_class, changed):
        """Of small rows, where `changed` makes of (accepted, finals) something else."""
        made = peer_class(torch, specd) if peer_class in (
            peers_specd.SpecdGreedy, peers_specd.SpecdSample, peers_specd.SpecdRejection) \
            else peer_class(torch)
        collect = made.collect
        made.collect = lambda answer: changed(*collect(answer))
        missing = []
        found = peers.check_peers(torch, [made], "cuda", missing)
        self.assertEqual(missing, [])
        return found[made.name]

    def test_answers_that_are_right(self):
        for peer in (peers_specd.SpecdGreedy, peers_specd.SpecdSample, peers_specd.SpecdRejection,
                     peers_samplers.TorchGreedy, peers_samplers.TorchSample,
                     peers_samplers.TorchRejection):
            with self.subTest(peer.name):
                self.assertEqual(self.differences(peer, lambda *answer: answer), "")

    def test_answers_that_are_wrong(self):
        def one_less(accepted, finals):
            return [max(0, count - 1) for count in accepted], finals

        def next_ids(accepted, finals):
            return accepted, [final + 1 if final < 299 else 0 for final in finals]

        def as_the_best(accepted, finals):
            return [max(accepted)] * len(accepted), finals

        for peer, changed, expected in (
                (peers_specd.SpecdGreedy, one_less, "accepted, the reference has"),
                (peers_specd.SpecdGreedy, next_ids, "is not the best of its row"),
                (peers_specd.SpecdSample, as_the_best, "drafts accepted in the mean, expected"),
                (peers_specd.SpecdRejection, as_the_best, "drafts accepted in the mean, expected"),
                (peers_samplers.TorchGreedy, next_ids, "is not the best of its row"),
                (peers_samplers.TorchSample, one_less, "has no mass"),
                (peers_samplers.TorchRejection, one_less, "accepted, the reference has"),
                (peers_samplers.TorchRejection, next_ids, "final id")):
            with self.subTest(peer.name, changed=changed.__name__):
                difference = self.differences(peer, changed)
                self.assertNotEqual(difference, "")
                self.assertIn(expected, difference)

    def test_final_ids_of_another_law(self):
        # The lowest ids that have any mass: each alone is possible.
        rows = peers_samplers.Rows(torch, vocab=300, batch=12, draft=3, dtype="fp32", device="cuda",
                                   seed=0)
        peer = peers_specd.SpecdRejection(torch, specd)
        p_rows, q_rows = peers_samplers.distributions(torch, rows)

        def lowest(answer, collect):
            accepted, _ = collect(answer)
            finals = []
            for b, count in enumerate(accepted):
                weights = peer.final_weights(rows, p_rows, q_rows, b, count).value
                finals.append(int((weights > 0).argmax()))
            return accepted, finals

        collect = peer.collect
        peer.collect = lambda answer: lowest(answer, collect)
        with peer.taken(rows):
            self.assertIn("final ids lie at 0.0", peer.difference(rows))

    def test_accepted_drafts_of_a_timed_shape_that_are_too_many(self):
        def all_stand(peer, answer, collect=peers_specd.SpecdPeer.collect):
            accepted, finals = collect(peer, answer)
            return [2] * len(accepted) if len(accepted) == 3 else accepted, finals

        with mock.patch.object(peers_specd.SpecdPeer, "collect", all_stand):
            code, printed, report = run_here(*SMALL, "--dtype=fp32", "--batch=3")
        self.assertEqual(code, 1)
        wrong = [r for r in report["results"] if r["difference"]]
        self.assertTrue({"specd_greedy"} <= {r["peer"] for r in wrong} <= set(OURS), wrong)
        self.assertIn("error: specd_greedy, fp32 vocab 700 batch 3 draft 2: 2.0000 drafts accepted",
                      printed)

    def test_expected_counts_are_those_of_a_chain(self):
        # 1/2 + 1/4 of one sequence and 1 + 0 of the other; by hand.
        shares = [[0.5, 0.5], [1.0, 0.0]]
        expected, difference = peers_samplers.accepted_difference(shares, 1.75 * 100, 100, True)
        self.assertEqual((expected, difference), (0.875, ""))
        # The variance is 11/16: 0.829 a round, and 6 of its tenth are 0.497.
        for away, is_wrong in ((0.49, False), (0.51, True), (-0.49, False), (-0.51, True)):
            difference = peers_samplers.accepted_difference(shares, (1.75 + away) * 100, 100, True)
            self.assertEqual(bool(difference[1]), is_wrong, away)
        self.assertEqual(peers_samplers.accepted_difference(shares, 340, 100, False)[1], "")
        # Where nothing is left to chance, one answer of many counts.
        certain = [[1.0, 1.0]]
        self.assertNotEqual(peers_samplers.accepted_difference(certain, 1999, 1000, True)[1], "")


class FailureTest(unittest.TestCase):
    def setUp(self):
        # The compared values do not matter here.
        rounds = mock.patch.object(peers_samplers, "LAW_ROUNDS", 5)
        rounds.start()
        self.addCleanup(rounds.stop)

    def test_what_cannot_be_run_of_others_is_missing_and_of_specd_an_error(self):
        def fails(peer, rows):
            raise OSError("no compiler\nsecond line")

        for peer, code in ((peers_samplers.TorchGreedy, 0), (peers_specd.SpecdGreedy, 1)):
            with mock.patch.object(peer, "call", fails):
                seen, printed, report = run_here(*SMALL, "--dtype=fp32")
            self.assertEqual(seen, code, printed)
            self.assertIn(f"{peer.name}: OSError: no compiler", printed)
            self.assertNotIn(peer.name, {result["peer"] for result in report["results"]})

    def test_memory_that_lacks_is_a_reason_and_no_error(self):
        exhausted = specd.Error(-7, "SPECD_ERROR_EXHAUSTED", "pinned memory")
        for error, code in ((exhausted, 0), (torch.OutOfMemoryError("2 GiB"), 0),
                            (RuntimeError("sequence 3"), 1)):
            def fails(*_, error=error):
                raise error

            with self.subTest(str(error)), mock.patch.object(peers, "capture", fails):
                seen, printed, report = run_here(*SMALL, "--dtype=fp32")
                self.assertEqual(seen, code, printed)
                self.assertEqual(len(report["results"]), 6)
                for result in report["results"]:
                    self.assertIn(str(error), result["reason"])

    def test_rows_that_do_not_fit_are_a_reason(self):
        rows = peers.Rows

        def fails(module, **shape):
            if shape["batch"] == 3:
                raise torch.OutOfMemoryError("2 GiB")
            return rows(module, **shape)

        with mock.patch.object(peers, "Rows", fails):
            code, printed, report = run_here(*SMALL, "--dtype=fp32", "--batch=3,1")
        self.assertEqual(code, 0, printed)
        self.assertEqual(report["results"][0]["reason"], "rows: OutOfMemoryError: 2 GiB")
        self.assertEqual({result["batch"] for result in report["results"][1:]}, {1})

    def test_a_peer_that_cannot_be_captured_is_timed_outside_a_graph(self):
        greedy = peers_samplers.TorchGreedy.call

        def synchronises(peer, rows):
            if torch.cuda.stream_in_use in torch.cuda.captured:
                raise RuntimeError("operation not permitted when stream is capturing")
            return greedy(peer, rows)

        with mock.patch.object(peers_samplers.TorchGreedy, "call", synchronises):
            code, printed, report = run_here(*SMALL, "--dtype=fp32")
        self.assertEqual(code, 0, printed)
        self.assertEqual({(r["peer"], r["graph"]) for r in report["results"]},
                         {(name, name != "torch_greedy") for name in OURS + OTHERS})

    def test_a_round_that_is_not_run_is_an_error(self):
        call = peers_specd.SpecdPeer.call

        def enqueues_nothing(peer, rows):
            return peer.finals if peer.num_staged > 0 else call(peer, rows)

        with mock.patch.object(peers_specd, "WAIT_MS", 1), \
                mock.patch.object(peers_specd.SpecdPeer, "call", enqueues_nothing):
            code, printed, _ = run_here(*SMALL, "--dtype=fp32")
        self.assertEqual(code, 1)
        self.assertIn("specd: a round that was staged has not been run", printed)


class TargetTest(unittest.TestCase):
    def test_peers_that_the_design_names_have_a_target_in_its_shapes(self):
        shape = {"dtype": "bf16", "vocab": 128256, "batch": 64, "draft": 5}

        def results_of(shape):
            results = [{"peer": name, "kind": "rejection", "state": state, "median_us": time}
                       for name, time in (("specd_rejection", 10), ("flashinfer_chain", 31),
                                          ("triton_rejection", 29), ("torch_rejection", 50))
                       for state in ("cold", "warm")]
            peers.add_ratios(results, shape)
            return {(r["peer"], r["state"]): (r["ratio"], r.get("target"), r.get("met"))
                    for r in results}

        found = results_of(shape)
        self.assertEqual(found["flashinfer_chain", "cold"], (3.1, 3.0, True))
        self.assertEqual(found["triton_rejection", "cold"], (2.9, 3.0, False))
        self.assertEqual(found["flashinfer_chain", "warm"], (3.1, None, None))
        self.assertEqual(found["torch_rejection", "cold"], (5.0, None, None))
        self.assertEqual(results_of({**shape, "batch": 1})["flashinfer_chain", "cold"][1], 3.0)
        self.assertIsNone(results_of({**shape, "batch": 8})["flashinfer_chain", "cold"][1])


if __name__ == "__main__":
    unittest.main()
