"""specd-http: streams as server-sent events. Every byte comes once, whoever is killed meanwhile.

The text to compare with is that of specd-toy-client, which reads the daemon's texts itself.
"""

import collections
import json
import signal
import socket
import subprocess
import threading
import unittest

from http_support import EventReader, HttpCase
from support import PATIENCE_S, TOKENIZER, wait_until

PROMPTS = ["The daemon", "A round", "The engine", "The library"]


class StreamsCase(HttpCase):
    def generate(self, *flags, prompts=PROMPTS):
        return self.engine(f"--prompt={'|'.join(prompts)}", "--print=none", *flags)

    def finished(self, *flags, prompts=PROMPTS[:1]):
        """A daemon with streams that have ended: their texts and ends, as the toy client has read them."""
        self.running = self.daemon()
        client = self.client(f"--streams={len(prompts)}")
        engine = self.generate("--temperature=0", *flags, prompts=prompts)
        self.assertEqual(engine.wait(), 0, engine.stderr)
        self.assertEqual(client.wait(), 0, client.stderr)
        self.start_http()
        return self.texts(client), self.ends(client)

    def text_of(self, events, begin=0):
        """Of specd's framing, checked against its offsets."""
        text = b""
        for event in events:
            part = event.json
            if part["kind"] == "lost":
                self.fail(part)
            if part["kind"] != "open":
                self.assertEqual(part["byte_offset"], begin + len(text))
            text += part.get("text", "").encode()
            self.assertEqual(event.offset, begin + len(text))
        return text


class FormatsTest(StreamsCase):
    def test_completions_and_chat_are_framed_as_openai_frames_them(self):
        texts, ends = self.finished("--max_tokens=40")
        name, end = PROMPTS[0], ends[PROMPTS[0]]
        for form in "completions", "chat":
            events = list(self.stream(name, format=form, usage=1, prompt_tokens=7))
            self.assertEqual(events[-1].data, "[DONE]")
            self.assertEqual(events[-1].id, f"{len(texts[name].encode())}.end")
            chunks = [event.json for event in events[:-1]]
            usage = chunks.pop()
            self.assertEqual(usage["choices"], [])
            self.assertEqual(usage["usage"]["prompt_tokens"], 7)
            self.assertEqual(usage["usage"]["completion_tokens"], end["tokens"])
            self.assertEqual(usage["usage"]["total_tokens"], 7 + end["tokens"])
            self.assertEqual(usage["usage"]["completion_tokens_details"]["accepted_prediction_tokens"], end["accepted"])
            choices = [chunk["choices"][0] for chunk in chunks]
            self.assertEqual({choice["index"] for choice in choices}, {0})
            self.assertEqual([choice["finish_reason"] for choice in choices],
                             [None] * (len(choices) - 1) + [end["finish"]])
            if form == "chat":
                self.assertEqual(choices[0]["delta"], {"role": "assistant", "content": ""})
                self.assertEqual(choices[-1]["delta"], {})
                text = "".join(choice["delta"].get("content", "") for choice in choices)
            else:
                text = "".join(choice["text"] for choice in choices)
            self.assertEqual(text, texts[name])
            self.assertEqual({chunk["object"] for chunk in chunks},
                             {"chat.completion.chunk" if form == "chat" else "text_completion"})
            self.assertEqual(len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}), 1)
        without = list(self.stream(name))
        self.assertEqual(without[-2].json["choices"][0]["finish_reason"], end["finish"])
        self.stop(self.running)

    def test_responses_are_framed_as_openai_frames_them(self):
        texts, ends = self.finished("--max_tokens=40")
        name, end = PROMPTS[0], ends[PROMPTS[0]]
        events = list(self.stream(name, format="responses"))
        self.assertEqual([event.name for event in events], [event.json["type"] for event in events])
        kinds = [event.name.removeprefix("response.") for event in events]
        self.assertEqual(kinds[:4], ["created", "in_progress", "output_item.added", "content_part.added"])
        self.assertEqual(set(kinds[4:-4]), {"output_text.delta"})
        self.assertEqual(kinds[-4:], ["output_text.done", "content_part.done", "output_item.done",
                                      "incomplete" if end["finish"] == "length" else "completed"])
        numbers = [event.json["sequence_number"] for event in events]
        self.assertTrue(all(a < b for a, b in zip(numbers, numbers[1:])), numbers)
        self.assertEqual("".join(event.json["delta"] for event in events[4:-4]), texts[name])
        self.assertEqual(events[-4].json["text"], texts[name])
        self.assertEqual(events[-1].json["response"]["output"][0]["content"][0]["text"], texts[name])
        self.assertEqual(events[-1].json["response"]["usage"]["output_tokens"], end["tokens"])
        # Who comes back gets the numbers that he would have had.
        again = list(self.stream(name, "3", format="responses"))
        self.assertEqual(again[-4].json["sequence_number"], events[-4].json["sequence_number"])
        self.stop(self.running)

    def test_a_stop_string_ends_the_text_before_it_and_is_named(self):
        texts, ends = self.finished("--stop=.", "--max_tokens=80")
        name = PROMPTS[0]
        self.assertEqual(ends[name]["stop"], ".")
        events = list(self.stream(name, format="specd"))
        self.assertEqual(self.text_of(events).decode(), texts[name])
        last = events[-1].json
        for key in "tokens", "finish", "stop", "rounds", "accepted", "late":
            self.assertEqual(last[key], ends[name][key])
        accepted = [span for event in events if event.json["kind"] == "text" for span in event.json["spans"]]
        self.assertGreater(sum(size for size, kind in accepted if kind & 1), 0)
        done = list(self.stream(name, format="chat"))
        self.assertEqual(done[-2].json["choices"][0]["stop_reason"], ".")
        self.stop(self.running)

    def test_curl_reads_a_stream(self):
        texts, _ = self.finished("--max_tokens=30")
        url = f"http://127.0.0.1:{self.port}{self.path(PROMPTS[0], format='specd')}"
        done = subprocess.run(["curl", "--silent", "--fail", "--no-buffer", url], capture_output=True, text=True,
                              check=True, timeout=PATIENCE_S)
        parts = [json.loads(line[6:]) for line in done.stdout.splitlines() if line.startswith("data: ")]
        self.assertEqual("".join(part.get("text", "") for part in parts), texts[PROMPTS[0]])
        self.assertEqual(parts[-1]["kind"], "end")
        self.stop(self.running)

    def test_openais_own_client_reads_all_framings(self):
        try:
            import openai
            from openai.types import Completion
            from openai.types.chat import ChatCompletionChunk
            from openai.types.responses import ResponseStreamEvent
        except ImportError:
            self.skipTest("the package openai is not installed; pip install openai")
        texts, _ = self.finished("--max_tokens=40")
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key="none")
        name = PROMPTS[0]
        for form, kind, text_of in (
                ("completions", Completion, lambda each: each.choices[0].text if each.choices else ""),
                ("chat", ChatCompletionChunk,
                 lambda each: each.choices[0].delta.content or "" if each.choices else ""),
                ("responses", ResponseStreamEvent,
                 lambda each: each.delta if each.type == "response.output_text.delta" else "")):
            stream = client.get(self.path(name).removeprefix("/v1"), cast_to=kind, stream=True,
                                stream_cls=openai.Stream[kind],
                                options={"params": {"format": form} | ({} if form == "responses" else {"usage": "1"})})
            parts = list(stream)
            self.assertEqual("".join(map(text_of, parts)), texts[name])
            if form == "responses":
                self.assertEqual(parts[-1].response.output_text, texts[name])
            else:
                self.assertGreater(parts[-1].usage.completion_tokens, 0)
        self.stop(self.running)


class ResumeTest(StreamsCase):
    def test_from_every_byte_on(self):
        texts, _ = self.finished("--max_tokens=60")
        name = PROMPTS[0]
        whole = texts[name].encode()
        inside = 0
        for offset in range(len(whole) + 1):
            if offset < len(whole) and whole[offset] & 0xC0 == 0x80:
                inside += 1
                self.assertEqual(self.status(self.path(name, **{"from": offset})), 416)
                continue
            expected = whole[offset:]
            self.assertEqual(self.text_of(self.stream(name, str(offset), format="specd"), offset), expected)
            if offset % 10 == 0:
                self.assertEqual(self.text_of(self.stream(name, format="specd", **{"from": offset}), offset), expected)
        # Last-Event-ID is the word of a client that comes back, so it goes before ?from.
        self.assertEqual(self.text_of(self.stream(name, str(len(whole)), format="specd", **{"from": 0}), len(whole)), b"")
        self.assertEqual(self.status(self.path(name), Last_Event_ID=f"{len(whole)}.end"), 204)
        for wrong in ("-1", "x", "1e3", "+1", " ", "9" * 40, str(2**64), ".end", "1.e"):
            response, text = self.get(self.path(name), Last_Event_ID=wrong)
            self.assertEqual(response.status, 200 if wrong == " " else 400, wrong)
        self.assertEqual(self.status(self.path(name), Last_Event_ID=str(len(whole) + 1)), 416)
        for wrong in "format=html", "from=-1", "usage=2", "prompt_tokens=x", "from=1&from=2", "abort_on_disconnect=yes":
            self.assertEqual(self.status(f"{self.path(name)}?{wrong}"), 400, wrong)
        self.stop(self.running)

    def test_a_request_that_nobody_knows_is_waited_for_and_then_refused(self):
        daemon = self.daemon()
        self.start_http()
        events = []

        def read():
            events.extend(self.stream(PROMPTS[0], format="specd"))

        reader = threading.Thread(target=read)
        reader.start()  # before the engine is there
        self.assertEqual(self.generate("--max_tokens=10", prompts=PROMPTS[:1]).wait(), 0)
        reader.join(PATIENCE_S)
        self.assertEqual(events[-1].json["kind"], "end")
        self.assertEqual(self.status(self.path("nobody")), 404)
        self.stop(daemon)


class Reader(threading.Thread):
    """Reads a stream like an EventSource: whenever it breaks off, it comes back with the last id."""

    def __init__(self, test, request_id):
        super().__init__(daemon=True)
        self.test, self.request_id = test, request_id
        self.text, self.num_returns, self.end, self.error = b"", 0, None, None
        self.start()

    def run(self):
        try:
            while self.end is None:
                self.read_once()
        except Exception as error:
            self.error = error

    def read_once(self):
        last_id = str(len(self.text)) if self.text else None
        try:
            events = self.test.stream(self.request_id, last_id, format="specd")
        except (OSError, AssertionError):  # it is not there again yet, or does not know the stream yet
            return
        self.num_returns += 1
        for event in events:
            part = event.json
            if part["kind"] == "text":
                self.test.assertEqual(part["byte_offset"], len(self.text))
                self.text += part["text"].encode()
            elif part["kind"] in ("end", "lost"):
                self.end = part


class DeathTest(StreamsCase):
    FLAGS = "--temperature=0", "--max_tokens=400", "--draft=1"

    def run_once(self, disturb=None, daemon_flags=(), detokenizer=False, engine_flags=(), shards=()):
        self.daemon_flags = daemon_flags
        self.specd = self.daemon(*daemon_flags)
        self.detok = self.detokenizer() if detokenizer else None
        detoks = [self.detokenizer(f"--shard={shard}") for shard in shards]
        self.start_http(*([f"--shards={len(shards)}"] if shards else []))
        flags = "--forward_ms=20" if disturb else "--forward_ms=0"
        engine = self.generate(*self.FLAGS, flags, self.endless_text(), *engine_flags)
        readers = {name: Reader(self, name) for name in PROMPTS}
        if disturb:
            for _ in range(4):
                seen = len(readers[PROMPTS[0]].text)
                wait_until(lambda: len(readers[PROMPTS[0]].text) > seen + 40 or not engine.running(), "some text")
                self.assertTrue(engine.running(), "the disturbance came too late")
                disturb()
        self.assertEqual(engine.wait(), 0, engine.stderr)
        for reader in readers.values():
            reader.join(PATIENCE_S)
            self.assertIsNone(reader.error)
            self.assertIsNotNone(reader.end, "the stream has no end")
            self.assertEqual(reader.end["kind"], "end", reader.end)
        self.kill(self.http)
        for detok in (*detoks, *([self.detok] if self.detok else [])):
            self.kill(detok)
        self.stop(self.specd)
        self.num_returns = sum(reader.num_returns for reader in readers.values())
        return {name: reader.text.decode() for name, reader in readers.items()}

    def detokenizer(self, *flags):
        return self.start("specd-detok", f"--specd=unix:{self.socket}", f"--tokenizer={TOKENIZER}", *flags)

    def compare(self, disturb, **options):
        expected = self.run_once()
        self.assertTrue(all(len(text) > 500 for text in expected.values()))
        self.assertEqual(self.run_once(disturb, **options), expected)

    def test_specd_http_is_killed_and_every_byte_comes_once(self):
        def disturb():
            port = self.port
            self.kill(self.http)
            self.start_http(listen=f"127.0.0.1:{port}")
        self.compare(disturb)
        self.assertGreater(self.num_returns, 2 * len(PROMPTS))

    def test_specd_detok_is_killed_and_every_byte_comes_once(self):
        def disturb():
            self.kill(self.detok)
            self.detok = self.detokenizer()
        self.compare(disturb, daemon_flags=("--detokenizer=process",), detokenizer=True)
        self.assertEqual(self.num_returns, len(PROMPTS))  # no client has noticed

    def test_texts_of_several_specd_detok_are_one(self):
        expected = self.run_once()
        self.assertEqual(self.run_once(daemon_flags=("--detokenizer=process",), shards=("0/2", "1/2")), expected)

    def test_the_daemon_is_killed_and_every_byte_comes_once(self):
        def disturb():
            self.kill(self.specd)
            self.specd = self.daemon(*self.daemon_flags)
        self.compare(disturb, engine_flags=("--reconnect_ms=60000",))
        self.assertEqual(self.num_returns, len(PROMPTS))


class ClientsTest(StreamsCase):
    def slow_client(self, request_id, **values):
        """A client that asks and then reads nothing, with little room in the kernel."""
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.settimeout(PATIENCE_S)
        client.connect(("127.0.0.1", self.port))
        client.sendall(f"GET {self.path(request_id, **values)} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode())
        return client

    def test_a_slow_client_slows_nobody_and_misses_nothing(self):
        daemon = self.daemon()
        self.start_http("--ping_ms=50")
        quick = []
        reader = threading.Thread(target=lambda: quick.extend(self.stream(PROMPTS[0], format="specd")))
        reader.start()
        slow = self.slow_client(PROMPTS[0], format="specd")
        engine = self.generate("--max_tokens=8000", "--draft=0", self.endless_text(), prompts=PROMPTS[:1])
        self.assertEqual(engine.wait(), 0, engine.stderr)  # before the slow one has read a byte
        reader.join(PATIENCE_S)
        with slow.makefile("rb") as file:
            while file.readline().strip():
                pass  # the head
            late = list(EventReader(file))
        slow.close()
        self.assertEqual(self.text_of(late), self.text_of(quick))
        self.assertGreater(late[-1].json["tokens"], 3000)
        self.stop(daemon)

    def test_pings_come_while_nothing_else_does(self):
        daemon = self.daemon()
        self.start_http("--ping_ms=20")
        engine = self.generate("--max_tokens=2000", "--forward_ms=300", prompts=PROMPTS[:1])
        response = self.ask(self.path(PROMPTS[0], format="specd"))
        lines = [response.readline() for _ in range(30)]
        self.assertGreater(lines.count(b":\n"), 3)
        # OpenAI's client takes an empty line behind an event with an id for a further event, without data.
        blocks = b"".join(lines).split(b"\n\n")
        self.assertTrue(all(b"data: " in block for block in blocks[:-1]), blocks)
        engine.signal(signal.SIGTERM)
        engine.wait()
        self.stop(daemon)

    def test_clients_beyond_the_limit_are_told_to_come_again(self):
        daemon = self.daemon()
        self.start_http("--streams_max=2")
        held = [self.ask("/v1/streams") for _ in range(2)]
        self.assertEqual([response.status for response in held], [200, 200])
        response, text = self.get("/v1/streams")
        self.assertEqual((response.status, response.getheader("Retry-After")), (503, "1"))
        self.assertIn("streams_max", text)
        self.assertEqual(self.status("/ready"), 200)
        held[0].fp.raw._sock.shutdown(socket.SHUT_RDWR)
        wait_until(lambda: self.ask("/v1/streams").status == 200, "a place")
        self.stop(daemon)

    def test_all_streams_come_over_one_connection(self):
        texts, _ = self.finished("--max_tokens=60", prompts=PROMPTS)
        got, ends = collections.defaultdict(str), 0
        for event in EventReader(self.ask("/v1/streams")):
            part = event.json
            got[part["rid"]] += part.get("text", "")
            ends += part["kind"] == "end"
            if ends == len(PROMPTS):
                break
        self.assertEqual(got, texts)
        self.stop(self.running)


if __name__ == "__main__":
    unittest.main()
