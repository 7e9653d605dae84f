"""The readers of soak_test.py: subscriptions that live as long as the soak, a browser, and a process that is
killed. Each checks that it gets every stream whole and once."""

import collections
import pathlib
import sys
import threading
import time

import specd
from http_support import EventReader
from support import PATIENCE_S


class Part(threading.Thread):
    """A thread whose error ends the soak."""

    def __init__(self, streams, name):
        super().__init__(daemon=True, name=name)
        self.streams = streams

    def run(self):
        try:
            self.work()
        except Exception as error:
            self.streams.failed(self.name, error)


class Follower(Part):
    """A subscription that lives as long as the soak."""

    def __init__(self, streams, uri, ids):
        super().__init__(streams, "ids" if ids else "texts")
        self.uri, self.ids = uri, ids
        self.is_ready = threading.Event()

    def work(self):
        have = {}
        with specd.subscribe(self.uri, ids=self.ids, silence_ms=30_000) as events:
            self.is_ready.set()
            for event in events:
                name = event.request_id
                if name is None and event.kind != "lost":
                    raise AssertionError(f"an event without a name: {event}")
                if event.kind == "lost" or event.missed:
                    raise AssertionError(f"{name} is lost: {event}")
                if event.kind == "open":
                    assert name not in have, f"{name} begins twice"
                    have[name] = () if self.ids else ""
                    continue
                script = self.streams.script(name)
                whole = script.tokens if self.ids else script.text
                assert event.offset == len(have[name]), (name, event, have[name])
                have[name] += event.ids if self.ids else event.text
                assert have[name] == whole[:len(have[name])], (name, have[name], whole)
                if event.kind == "end":
                    assert have[name] == whole, (name, "ends early", have[name], whole)
                    self.streams.read(name, self.name)


class HttpFollower(Part):
    """A browser: it reads one stream after another, and comes back with the id of its last event."""

    def __init__(self, streams, test):
        super().__init__(streams, "http")
        self.test, self.num_returns = test, 0

    def work(self):
        while not (self.streams.is_over.is_set() and not self.waiting()):
            for name in self.waiting():
                self.follow(name)
            time.sleep(.005)

    def waiting(self):
        return [name for name, readers in list(self.streams.waits_for.items()) if "http" in readers]

    def follow(self, name):
        text, last_id, expected = "", None, self.streams.script(name).text
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                for event in self.events(name, last_id):
                    part = event.json
                    assert part["kind"] != "lost", (name, part)
                    if part["kind"] != "open":
                        assert part["byte_offset"] == len(text), (name, part, text)
                    text, last_id = text + part.get("text", ""), event.id
                    assert text == expected[:len(text)], (name, text, expected)
                    if part["kind"] == "end":
                        assert text == expected, (name, "ends early", text, expected)
                        return self.streams.read(name, "http")
            except OSError:
                pass
            assert time.monotonic() < deadline, f"{name} has no end over HTTP"
            self.num_returns += 1
            time.sleep(.01)

    def events(self, name, last_id):
        """Those of a connection, up to its end; none while nobody serves them."""
        headers = {} if last_id is None else {"Last-Event-ID": last_id}
        connection = self.test.connection()
        try:
            connection.request("GET", self.test.path(name, format="specd"), headers=headers)
            response = connection.getresponse()
            if response.status == 200:
                yield from EventReader(response)
        except self.test.BROKEN:
            pass
        finally:
            connection.close()


SUBSCRIBER = """
import sys, specd
with specd.subscribe(sys.argv[1], silence_ms=30000) as events:
    for event in events:
        if event.kind in ("text", "end", "lost"):
            print(event.kind, event.request_id, event.offset, event.text, sep="\\t", flush=True)
"""


class Subscriber:
    """A subscriber in a process of its own, which is killed. What it has been given begins every stream at its
    beginning."""

    def __init__(self, test):
        self.process = test.start(pathlib.Path(sys.executable), test.folder / "subscriber.py", f"unix:{test.socket}")

    def check(self, streams):
        texts = collections.defaultdict(str)
        for line in self.process.stdout.splitlines(keepends=True):
            if not line.endswith("\n"):
                break  # the kill came while it wrote
            kind, name, offset, text = line[:-1].split("\t")
            assert kind != "lost", (name, "is lost to a subscriber")
            whole = streams.script(name).text
            assert int(offset) == len(texts[name]), (name, offset, texts[name])
            texts[name] += text
            assert texts[name] == whole[:len(texts[name])], (name, texts[name], whole)
            assert kind != "end" or texts[name] == whole, (name, "ends early", texts[name], whole)
        return len(texts)
