"""Reads and writes traces for the tests of specd-replay, without any code of specd.

MCAP is read by the letter of its specification (mcap.dev/spec), without compression. Records are
msgpack maps whose missing members have the defaults below.
"""

import collections
import struct

import msgpack
import numpy as np

MAGIC = b"\x89MCAP0\r\n"
HEADER, FOOTER, CHANNEL, MESSAGE, CHUNK, DATA_END = 0x01, 0x02, 0x04, 0x05, 0x06, 0x0F
NO_COIN = 2**64 - 1
NO_ROW = 2**64 - 1
METHODS = ["auto", "greedy", "exact_match", "token", "block", "tree", "traversal", "target_only",
           "typical", "relaxed", "threshold", "synthetic"]
DECISION = dict(judged=False, stands=False, bad_target=False, bad_draft=False, token=-1,
                p_weight=0.0, q_weight=0.0, p_mass=0.0, q_mass=0.0, accept_coin=NO_COIN, prefix=1.0,
                bound=-1.0, draw_coin=NO_COIN, draw_purpose=1, draw_interval={}, residual_mass=-1.0,
                token_weight=0.0, zero_step=0, overlap=-1.0, best_draft_p=-1.0)
TASK = dict(answer=0, tokens=[], kinds=[], target_rows=[], draft_rows=[], draft_weights=[],
            draft_masses=[], method=1, target_scale=0.0, draft_scale=0.0, seed=0, first_position=0,
            round_base=0, target_filters={}, places=[], outcome={}, confirmed=[], decisions=[],
            edits=[], penalties={})

Record = collections.namedtuple("Record", "topic value")


def _records(data, offset, end):
    while offset + 9 <= end:
        opcode, size = data[offset], struct.unpack_from("<Q", data, offset + 1)[0]
        if offset + 9 + size > end:
            return
        yield opcode, offset + 9, offset + 9 + size
        offset += 9 + size


def top_records(data):
    """The first and the end byte of each record that lies in no chunk."""
    return [(begin - 9, end) for _, begin, end in _records(data, len(MAGIC), len(data))]


def _text(data, at):
    size = struct.unpack_from("<I", data, at)[0]
    return data[at + 4:at + 4 + size].decode(), at + 4 + size


def read(path):
    """The records of a whole trace, in the order of the file."""
    data = path.read_bytes()
    assert data.startswith(MAGIC), path
    topics, records = {}, []

    def take(opcode, begin, end):
        if opcode == CHANNEL:
            number = struct.unpack_from("<H", data, begin)[0]
            topics[number], _ = _text(data, begin + 4)
        elif opcode == MESSAGE:
            number = struct.unpack_from("<H", data, begin)[0]
            value = msgpack.unpackb(data[begin + 22:end], strict_map_key=False)
            records.append(Record(topics[number], value))
        elif opcode == CHUNK:
            name, at = _text(data, begin + 28)
            assert name == "", "compressed"
            for inner in _records(data, at + 8, end):
                take(*inner)

    for opcode, begin, end in _records(data, len(MAGIC), len(data)):
        if opcode == DATA_END:
            break
        take(opcode, begin, end)
    return records


def _record(opcode, content):
    return struct.pack("<BQ", opcode, len(content)) + content


def _sized(text):
    return struct.pack("<I", len(text)) + text.encode()


class Float32(float):
    """A float that is written with 32 bits."""


def _floats(value, name=None):
    """Marks the members that a record holds as float32: msgpack writes Python's floats with 64."""
    single = {"p_weight", "q_weight", "token_weight", "target_scale", "draft_scale", "min_p", "bias",
              "repetition", "frequency", "presence", "scale", "cap", "value", "draft_weights"}
    if isinstance(value, dict):
        return {key: _floats(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [_floats(inner, name) for inner in value]
    if isinstance(value, float) and name in single:
        return Float32(value)
    return value


def _pack(value):
    if isinstance(value, dict):
        head = struct.pack(">BI", 0xDF, len(value))
        return head + b"".join(msgpack.packb(k) + _pack(v) for k, v in value.items())
    if isinstance(value, list):
        return struct.pack(">BI", 0xDD, len(value)) + b"".join(_pack(v) for v in value)
    if isinstance(value, Float32):
        return struct.pack(">Bf", 0xCA, value)
    return msgpack.packb(value)


def write(path, records):
    """Writes records as a finished MCAP file without chunks."""
    topics = ["info", "opening", "end", "round", "drops"]
    data = MAGIC + _record(HEADER, _sized("") + _sized("test"))
    for number, topic in enumerate(topics, 1):
        data += _record(CHANNEL, struct.pack("<HH", number, 0) + _sized(topic) + _sized("msgpack")
                        + struct.pack("<I", 0))
    for record in records:
        head = struct.pack("<HIQQ", topics.index(record.topic) + 1, 0, 0, 0)
        data += _record(MESSAGE, head + _pack(_floats(record.value)))
    data += _record(DATA_END, struct.pack("<I", 0)) + _record(FOOTER, struct.pack("<QQI", 0, 0, 0))
    path.write_bytes(data + MAGIC)


class Trace:
    """A trace with its rows."""

    def __init__(self, path):
        self.path = path
        self.records = read(path)
        self.info = self.records[0].value
        self.vocab_size = self.info["vocab_size"]
        self.rounds = [r.value for r in self.records if r.topic == "round"]
        self.openings = {r.value["sequence"]: r.value for r in self.records if r.topic == "opening"}
        name = self.info.get("row_file", "")
        self.row_bytes = (path.parent / name).read_bytes() if name else b""

    def request(self, sequence):
        return self.openings[sequence].get("request_id", "")

    def steps(self):
        """(round, task, answer) of every task, with defaults filled in."""
        for record in self.rounds:
            for task in record.get("tasks", []):
                whole = {**TASK, **task}
                whole["decisions"] = [{**DECISION, **d} for d in whole["decisions"]]
                yield record, whole, record["answers"][whole["answer"]]

    def row(self, record, tensor, index):
        """A recorded fp32 row, or None."""
        for row in record.get("rows", []):
            if row.get("tensor", 0) == tensor and row.get("index", 0) == index:
                offset = row["offset"]
                return np.frombuffer(self.row_bytes, "<f4", self.vocab_size, offset)
        return None

    def mask(self, record, index):
        for row in record.get("rows", []):
            if row.get("tensor", 0) == 2 and row.get("index", 0) == index:
                words = np.frombuffer(self.row_bytes, "<u4", (self.vocab_size + 31) // 32,
                                      row["offset"])
                bits = (words[:, None] >> np.arange(32, dtype=np.uint32)) & 1
                return bits.reshape(-1)[:self.vocab_size].astype(bool)
        return None


def num_drawn(task):
    tokens = task["tokens"]
    return tokens.index(-1) if -1 in tokens else len(tokens)


def softmax(row, scale, mask=None):
    """p of a row after masks and temperature, in double precision. scale = log2(e) / temperature."""
    x = row.astype(np.float64) * scale
    if mask is not None:
        x = np.where(mask, x, -np.inf)
    weights = np.exp2(x - x.max())
    return weights / weights.sum()
