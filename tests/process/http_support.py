"""Starts specd-http, and reads server-sent events as the HTML standard says: standard library only."""

import http.client
import json
import os
import re
import socket
import urllib.parse

from support import PATIENCE_S, ProcessTest, wait_until


class Event:
    def __init__(self, name, data, last_id):
        self.name, self.data, self.id = name, data, last_id

    @property
    def json(self):
        return json.loads(self.data)

    @property
    def offset(self):
        return int(self.id.removesuffix(".end"))


class EventReader:
    """The events of a response, up to its end, or until it breaks off."""

    def __init__(self, response):
        self.response = response

    def __iter__(self):
        name, data, last_id = "", [], ""
        while line := self.read_line():
            line = line.decode().rstrip("\n")
            if line == "":
                if data:
                    yield Event(name, "\n".join(data), last_id)
                name, data = "", []
            elif not line.startswith(":"):
                field, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if field == "event":
                    name = value
                elif field == "data":
                    data.append(value)
                elif field == "id":
                    last_id = value

    def read_line(self):
        try:
            return self.response.readline()
        except (http.client.HTTPException, OSError):
            return b""


class HttpCase(ProcessTest):
    def start_http(self, *flags, listen="127.0.0.1:0"):
        server = self.start("specd-http", f"--listen={listen}", f"--specd=unix:{self.socket}", *flags)
        wait_until(lambda: "serves " in server.stderr or not server.running(), "specd-http")
        self.assertTrue(server.running(), server.stderr)
        found = re.search(r"serves http://(?:127\.0\.0\.1|0\.0\.0\.0):(\d+)", server.stderr)
        self.port = int(found[1]) if found else None
        self.http = server
        return server

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def ask(self, path, method="GET", body=None, **headers):
        """The response, whose connection the test closes with it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        self.addCleanup(connection.close)
        return response

    def get(self, path, method="GET", body=None, **headers):
        response = self.ask(path, method, body, **headers)
        return response, response.read().decode()

    def status(self, path, **headers):
        return self.get(path, **headers)[0].status

    def path(self, request_id, **values):
        query = urllib.parse.urlencode(values)
        return f"/v1/streams/{urllib.parse.quote(request_id, safe='')}" + (f"?{query}" if query else "")

    def stream(self, request_id, last_id=None, **values):
        headers = {} if last_id is None else {"Last_Event_ID": last_id}
        response = self.ask(self.path(request_id, **values), **headers)
        self.assertEqual(response.status, 200, response.status)
        self.assertEqual(response.getheader("Content-Type"), "text/event-stream; charset=utf-8")
        return EventReader(response)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.http.process.pid}/fd"))
