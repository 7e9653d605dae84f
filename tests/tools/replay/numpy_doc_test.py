"""The Python block of docs/TRACES.md, run as a reader runs it, on traces of the recorder.

The rows that the block maps are those that the engine gave. PyPI's reader checks every checksum of the
files, and finds their messages in the order of the file.
"""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import numpy
import specd
from mcap.reader import make_reader

SOURCE = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ["SPECD_BIN"])
VOCAB, DRAFT, SEQUENCES = 1000, 3, 2
PLACES = SEQUENCES * (DRAFT + 1)


def block_of_document():
    blocks = re.findall(r"^```python\n(.*?)^```", (SOURCE / "docs/TRACES.md").read_text(), re.M | re.S)
    (block,) = (block for block in blocks if "make_reader" in block)
    return block


def rows_of(path):
    """What the block leaves: its messages, and (round, row, numbers) each time it has mapped a row."""
    seen = []
    # The block stands as it is. A line behind it, in its innermost loop, keeps what it found.
    program = block_of_document() + "        seen.append((round, row, numpy.array(logits)))\n"
    scope = {"path": str(path), "seen": seen}
    exec(compile(program, "docs/TRACES.md", "exec"), scope)  # pylint: disable=exec-used
    return scope["messages"], seen


class NumpyDocument(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="specd-numpy-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def check_order(self, path):
        """The order of log times is the order of the file, and the indexes tell the same times."""
        with open(path, "rb") as file:
            reader = make_reader(file, validate_crcs=True)
            by_time = [(c.topic, m.sequence, m.log_time) for _, c, m in reader.iter_messages()]
            in_file = [(c.topic, m.sequence, m.log_time)
                       for _, c, m in reader.iter_messages(log_time_order=False)]
            summary = reader.get_summary()
        self.assertEqual(by_time, in_file)
        self.assertEqual(in_file[0][0], "info")
        self.assertEqual(summary.statistics.message_start_time, in_file[0][2])
        self.assertEqual(summary.statistics.message_end_time, in_file[-1][2])
        self.assertEqual(summary.statistics.message_count, len(in_file))
        chunks = [chunk for chunk in summary.chunk_indexes if chunk.message_index_offsets]
        self.assertEqual(chunks[0].message_start_time, in_file[0][2])
        for before, after in zip(chunks, chunks[1:]):
            self.assertLessEqual(before.message_end_time, after.message_start_time)
        self.assertEqual(chunks[-1].message_end_time, in_file[-1][2])
        return in_file

    def record(self, name, options, num_rounds, target="float32", draft="float32", dump=False):
        """Traces of rounds with rows that are known: {number of a round: (target, draft) rows}."""
        rng = numpy.random.default_rng(7)
        given = {}
        with specd.Engine(vocab_size=VOCAB, max_batch=SEQUENCES, max_draft=DRAFT,
                          trace=str(self.folder / name), trace_options=options) as engine:
            p = engine.rows(PLACES, dtype=target)
            q = engine.rows(SEQUENCES * DRAFT, "draft", dtype=draft)
            sequences = [engine.open(specd.SamplingParams(seed=i, max_tokens=10**6, verify="token"),
                                     request_id=f"r{i}") for i in range(SEQUENCES)]
            for number in range(1, num_rounds + 1):
                for rows in (p, q):
                    rows[...] = rng.normal(size=rows.shape).astype(numpy.float32)
                given[number] = tuple(rows.astype(numpy.float32) for rows in (p, q))
                engine.verify(p, {s: rng.integers(0, VOCAB, DRAFT).tolist() for s in sequences}, q=q)
            if dump:
                engine.dump_trace()
        paths = sorted((self.folder / name).glob("*.mcap"),
                       key=lambda path: int(path.stem.rsplit("-")[-1]))
        return paths, given

    def check_rows(self, path, given):
        messages, seen = rows_of(path)
        self.assertEqual(messages[0][0], "info")
        self.assertGreater(len(seen), 0)
        tensors = set()
        for record, row, numbers in seen:
            tensor = row.get("tensor", 0)
            numpy.testing.assert_array_equal(numbers, given[record["number"]][tensor][row.get("index", 0)])
            tensors.add(tensor)
        self.assertEqual(tensors, {0, 1})
        return {record["number"] for record, _, _ in seen}

    def test_the_rows_are_those_of_the_engine(self):
        for target, draft in (("float32", "float32"), ("bfloat16", "float16"), ("float16", "bfloat16")):
            with self.subTest(target=target, draft=draft):
                (path,), given = self.record(target, "level=rows", 20, target, draft)
                self.check_order(path)
                self.assertEqual(self.check_rows(path, given), set(range(1, 21)))

    def test_files_of_a_rotated_trace(self):
        paths, given = self.record("rotated", "level=rows,file_mib=1", 150)
        self.assertGreater(len(paths), 2)
        numbers = []
        for path in paths:
            topics = [topic for topic, _, _ in self.check_order(path)]
            self.assertEqual(topics[:3], ["info", "opening", "opening"])
            numbers += sorted(self.check_rows(path, given))
        self.assertEqual(numbers, list(range(1, 151)))

    def test_the_file_of_a_flight_recorder(self):
        (path,), given = self.record("flight", "level=rows,flight=5,triggers=request", 40, dump=True)
        times = [time for topic, _, time in self.check_order(path) if topic == "round"]
        self.assertEqual(len(set(times)), 5)  # they are those of the rounds, not of the dump
        self.assertEqual(self.check_rows(path, given), set(range(36, 41)))

    def test_a_cut_of_a_trace(self):
        (path,), given = self.record("whole", "level=rows", 20)
        cut = self.folder / "cut.mcap"
        subprocess.run([BIN / "specd-replay", "cut", path, "--rounds=5:9", "-o", cut], check=True,
                       stdout=subprocess.DEVNULL)
        self.check_order(cut)
        self.assertEqual(self.check_rows(cut, given), set(range(5, 10)))

    def test_toy_engine(self):
        """With temperature 0 a place's token is the argmax of its row."""
        traces = self.folder / "toy"
        subprocess.run([BIN / "specd-toy-engine", "--specd=embedded:cpu", "--temperature=0",
                        f"--tokenizer={SOURCE}/tools/toy_engine/tokenizer.json", "--prompt=The daemon",
                        f"--corpus={SOURCE}/LICENSE", "--max_tokens=30", "--print=none", "--stats=none",
                        f"--trace={traces}", "--trace_options=level=rows"], check=True)
        (path,) = traces.glob("*.mcap")
        self.check_order(path)
        _, seen = rows_of(path)
        rows = {(record["number"], row.get("index", 0)): numbers for record, row, numbers in seen
                if row.get("tensor", 0) == 0}
        num_tokens = 0
        for record in {record["number"]: record for record, _, _ in seen}.values():
            for task in record["tasks"]:
                for row, token in zip(task["target_rows"], task["confirmed"]):
                    self.assertEqual(int(rows[record["number"], row].argmax()), token)
                    num_tokens += 1
        self.assertGreater(num_tokens, 10)


if __name__ == "__main__":
    unittest.main()
