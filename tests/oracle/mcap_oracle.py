"""Traces against Foxglove's mcap: it reads what specd writes, and specd reads what it writes. numpy
maps the rows beside a trace.

Usage: mcap_oracle.py SPECD_MCAP_PROBE

Left out on purpose: compressed files. specd refuses them by name, and neither lz4 nor zstandard is
installed.
"""

import io
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import zlib

import numpy
from mcap.exceptions import EndOfFile
from mcap.opcode import Opcode
from mcap.reader import NonSeekingReader, SeekingReader
from mcap.records import (Channel, Chunk, ChunkIndex, DataEnd, Footer, Message, MessageIndex, Metadata,
                          MetadataIndex, Statistics, SummaryOffset)
from mcap.stream_reader import StreamReader, breakup_chunk
from mcap.writer import CompressionType, IndexType, Writer

SEED = 20261124
MAGIC_SIZE = 8
FOOTER_SIZE = 9 + 20
TEXTS = ["", "round", "日本語", "naïve", "a b\n", "👋"]


def hex_of(value):
    data = value.encode() if isinstance(value, str) else value
    return data.hex() or "-"


def hex_of_map(values):
    return "".join(f" {hex_of(key)} {hex_of(value)}" for key, value in values.items())


def random_map(rng):
    return {f"{rng.choice(TEXTS)}{i}": rng.choice(TEXTS) for i in range(rng.randint(0, 4))}


class Trace:
    """What stands in a file, in the words of the probe and as the reader should show it."""

    def __init__(self, rng, num_steps, schemas_max=0):
        self.schemas = [(rng.choice(TEXTS), rng.choice(["", "jsonschema"]), rng.randbytes(
            rng.randint(0, 40))) for _ in range(rng.randint(0, schemas_max))]
        self.channels = [(f"{rng.choice(TEXTS)}/{i}", rng.choice(["json", "msgpack"]),
                          rng.randint(0, len(self.schemas)), random_map(rng))
                         for i in range(rng.randint(1, 5))]
        self.messages = []
        self.metadata = []
        self.steps = []
        for number in range(num_steps):
            kind = rng.random()
            if kind < 0.02:
                self.metadata.append((f"{rng.choice(TEXTS)}{number}", random_map(rng)))
                self.steps.append(("metadata", *self.metadata[-1]))
            elif kind < 0.04:
                self.steps.append(("flush",))
            else:
                message = (rng.randint(1, len(self.channels)), number, rng.randint(0, 1 << 62),
                           rng.randbytes(rng.choice([0, 1, 50, 900])))
                self.messages.append(message)
                self.steps.append(("message", *message))

    def commands(self):
        for topic, encoding, _, values in self.channels:
            yield f"channel {hex_of(topic)} {hex_of(encoding)}{hex_of_map(values)}"
        for kind, *step in self.steps:
            if kind == "message":
                yield f"message {step[0]} {step[1]} {step[2]} {hex_of(step[3])}"
            elif kind == "metadata":
                yield f"metadata {hex_of(step[0])}{hex_of_map(step[1])}"
            else:
                yield "flush"

    def message_lines(self):
        for channel_id, sequence, time, payload in self.messages:
            topic, encoding, _, _ = self.channels[channel_id - 1]
            yield (f"message {hex_of(topic)} {hex_of(encoding)} {channel_id} {sequence} {time} "
                   f"{hex_of(payload)}")

    def metadata_lines(self):
        return [f"metadata {hex_of(name)}{hex_of_map(values)}" for name, values in self.metadata]


def write_with_specd(probe, path, trace, chunk_size, finish=True):
    commands = [*trace.commands(), *(["finish"] if finish else [])]
    run = subprocess.run([probe, "write", path, str(chunk_size)], capture_output=True, text=True,
                         input="".join(f"{line}\n" for line in commands), check=False)
    assert run.returncode == 0, run.stderr


def read_with_specd(probe, path):
    run = subprocess.run([probe, "read", path], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def record_at(data, offset):
    """The only record that the library finds at this place."""
    size = 9 + struct.unpack_from("<Q", data, offset + 1)[0]
    stream = StreamReader(io.BytesIO(data[offset:offset + size]), skip_magic=True, emit_chunks=True)
    return next(iter(stream.records)), size


def check_messages(reader, trace):
    read = list(reader.iter_messages(log_time_order=False))
    assert len(read) == len(trace.messages)
    for (schema, channel, message), expected in zip(read, trace.messages):
        channel_id, sequence, time, payload = expected
        topic, encoding, schema_id, values = trace.channels[channel_id - 1]
        assert channel == Channel(channel_id, topic, encoding, values, schema_id), channel
        assert schema is None
        assert message == Message(channel_id, time, payload, time, sequence), message


def check_index(data, trace, summary):
    """Every offset of the summary and of the message indexes points at its record."""
    statistics = summary.statistics
    times = [time for _, _, time, _ in trace.messages] or [0]
    counts = {}
    for channel_id, *_ in trace.messages:
        counts[channel_id] = counts.get(channel_id, 0) + 1
    assert statistics == Statistics(
        attachment_count=0, channel_count=len(trace.channels), channel_message_counts=counts,
        chunk_count=len(summary.chunk_indexes), message_count=len(trace.messages),
        message_end_time=max(times), message_start_time=min(times),
        metadata_count=len(trace.metadata), schema_count=0), statistics
    assert len(summary.channels) == len(trace.channels)
    assert not summary.schemas

    for index, (name, values) in zip(summary.metadata_indexes, trace.metadata, strict=True):
        record, size = record_at(data, index.offset)
        assert record == Metadata(name=name, metadata=values) and index.name == name
        assert size == index.length

    num_messages = 0
    for index in summary.chunk_indexes:
        chunk, size = record_at(data, index.chunk_start_offset)
        assert isinstance(chunk, Chunk) and size == index.chunk_length
        assert chunk.uncompressed_crc == zlib.crc32(chunk.data) != 0
        assert index.compressed_size == index.uncompressed_size == len(chunk.data)
        assert (chunk.message_start_time, chunk.message_end_time) == (index.message_start_time,
                                                                      index.message_end_time)
        inside = [record for record in breakup_chunk(chunk, validate_crc=True)
                  if isinstance(record, Message)]
        inside_times = [message.log_time for message in inside] or [0]
        assert (min(inside_times), max(inside_times)) == (index.message_start_time,
                                                          index.message_end_time)
        end = index.chunk_start_offset + size
        assert index.message_index_length == sum(
            record_at(data, offset)[1] for offset in index.message_index_offsets.values())
        for channel_id, offset in index.message_index_offsets.items():
            assert end <= offset < end + index.message_index_length
            message_index, _ = record_at(data, offset)
            assert isinstance(message_index, MessageIndex)
            assert message_index.channel_id == channel_id
            for time, place in message_index.records:
                message, _ = record_at(chunk.data, place)
                assert isinstance(message, Message), message
                assert (message.log_time, message.channel_id) == (time, channel_id)
                num_messages += 1
    assert num_messages == len(trace.messages)


def check_summary_section(data):
    footer, _ = record_at(data, len(data) - MAGIC_SIZE - FOOTER_SIZE)
    assert isinstance(footer, Footer)
    crc_place = len(data) - MAGIC_SIZE - 4
    assert footer.summary_crc == zlib.crc32(data[footer.summary_start:crc_place]) != 0
    groups = {Opcode.CHANNEL: Channel, Opcode.CHUNK_INDEX: ChunkIndex,
              Opcode.METADATA_INDEX: MetadataIndex, Opcode.STATISTICS: Statistics}
    offset, group_place = footer.summary_offset_start, footer.summary_start
    while offset < len(data) - MAGIC_SIZE - FOOTER_SIZE:
        group, size = record_at(data, offset)
        assert isinstance(group, SummaryOffset)
        assert group.group_start == group_place
        group_place += group.group_length
        place = group.group_start
        while place < group_place:
            record, record_size = record_at(data, place)
            assert isinstance(record, groups[group.group_opcode]), record
            place += record_size
        assert place == group_place
        offset += size
    assert group_place == footer.summary_offset_start


def specd_writes(probe, folder, rng, number):
    trace = Trace(rng, rng.choice([0, 1, 40, 600]))
    path = pathlib.Path(folder) / f"specd_{number}.mcap"
    write_with_specd(probe, path, trace, rng.choice([1, 200, 5000, 1 << 20]))
    data = path.read_bytes()
    seeking = SeekingReader(io.BytesIO(data), validate_crcs=True)
    header = seeking.get_header()
    assert header.profile == "specd" and header.library.startswith("specd 0."), header
    check_messages(seeking, trace)
    check_messages(NonSeekingReader(io.BytesIO(data), validate_crcs=True), trace)
    assert [(record.name, record.metadata) for record in seeking.iter_metadata()] == trace.metadata
    check_index(data, trace, seeking.get_summary())
    check_summary_section(data)
    # By time, over the index: the same messages.
    by_time = [message for _, _, message in seeking.iter_messages()]
    assert [message.log_time for message in by_time] == sorted(m[2] for m in trace.messages)
    # The checksum of the data section is there, and the library agrees with it.
    records = list(StreamReader(io.BytesIO(data), validate_crcs=True).records)
    ends = [record for record in records if isinstance(record, DataEnd)]
    assert len(ends) == 1 and ends[0].data_section_crc != 0

    lines = read_with_specd(probe, path)
    assert lines[1:] == [*trace.message_lines(), *trace.metadata_lines(), "end"]
    return len(trace.messages)


def mcap_writes(probe, folder, rng, number):
    trace = Trace(rng, rng.choice([0, 1, 40, 600]), schemas_max=3)
    path = pathlib.Path(folder) / f"mcap_{number}.mcap"
    use_chunking = rng.random() < 0.7
    # Without a chunk or a message, mcap 1.6.0 leaves the channels out of that checksum; its own
    # reader refuses such a file, too.
    enable_data_crcs = rng.random() < 0.7 and (use_chunking or bool(trace.steps))
    with open(path, "wb") as file:
        writer = Writer(
            file, chunk_size=rng.choice([1, 200, 5000, 1 << 20]), compression=CompressionType.NONE,
            index_types=rng.choice([IndexType.ALL, IndexType.NONE]),
            repeat_channels=rng.random() < 0.7, repeat_schemas=rng.random() < 0.7,
            use_chunking=use_chunking, use_statistics=rng.random() < 0.7,
            use_summary_offsets=rng.random() < 0.7, enable_crcs=rng.random() < 0.7,
            enable_data_crcs=enable_data_crcs)
        writer.start("profile", "library")
        for schema in trace.schemas:
            writer.register_schema(*schema)
        for channel in trace.channels:
            writer.register_channel(*channel)
        for kind, *step in trace.steps:
            if kind == "message":
                channel_id, sequence, time, payload = step
                writer.add_message(channel_id, time, payload, time, sequence)
            elif kind == "metadata":
                writer.add_metadata(*step)
            else:
                writer.add_attachment(1, 2, "name", "text/plain", rng.randbytes(100))
        writer.finish()
    lines = read_with_specd(probe, path)
    assert lines[0] == f"header {hex_of('profile')} {hex_of('library')}"
    assert lines[1:] == [*trace.message_lines(), *trace.metadata_lines(), "end"], path
    return len(trace.messages)


def both_read_a_torn_file(probe, folder, rng):
    """A file that is cut: both find the same messages of whole chunks."""
    trace = Trace(rng, 300)
    path = pathlib.Path(folder) / "torn.mcap"
    write_with_specd(probe, path, trace, 2000, finish=False)
    data = path.read_bytes()
    lengths = set()
    for _ in range(60):
        cut = data[:rng.randint(100, len(data))]
        path.write_bytes(cut)
        theirs = 0
        try:
            for record in StreamReader(io.BytesIO(cut), validate_crcs=True).records:
                theirs += isinstance(record, Message)
        except (EndOfFile, struct.error, ValueError):
            pass  # it has no error of its own for a record that is cut
        except Exception as error:  # noqa: BLE001
            assert "CRC" in type(error).__name__, error
        *lines, last = read_with_specd(probe, path)
        ours = [line for line in lines if line.startswith("message ")]
        assert last == "torn"
        assert len(ours) == theirs, (len(cut), len(ours), theirs)
        assert ours == list(trace.message_lines())[:len(ours)]
        lengths.add(len(ours))
    assert len(lengths) > 10, lengths


def numpy_maps_rows(probe, folder):
    path = pathlib.Path(folder) / "a.rows"
    numbers = numpy.random.default_rng(SEED)
    rounds = [numbers.random(shape, dtype=numpy.float32)
              for shape in [(1, 8), (3, 1024), (2, 1000), (5, 7)]]
    run = subprocess.run([probe, "rows", path], capture_output=True, text=True, check=True,
                         input="".join(f"{rows.tobytes().hex()}\n" for rows in rounds))
    offsets = [int(line) for line in run.stdout.split()]
    for rows, offset in zip(rounds, offsets, strict=True):
        assert offset % 4096 == 0
        mapped = numpy.memmap(path, numpy.float32, "r", offset, rows.shape)
        assert numpy.array_equal(mapped, rows)


def main():
    probe = sys.argv[1]
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    with tempfile.TemporaryDirectory() as folder:
        num_messages = sum(specd_writes(probe, folder, rng, number) for number in range(40))
        print(f"mcap reads 40 files of specd: {num_messages} messages, every index and checksum")
        num_messages = sum(mcap_writes(probe, folder, rng, number) for number in range(80))
        print(f"specd reads 80 files of mcap: {num_messages} messages")
        both_read_a_torn_file(probe, folder, rng)
        print("both read 60 torn files alike")
        numpy_maps_rows(probe, folder)
        print("numpy maps the rows")


if __name__ == "__main__":
    main()
