"""Chromium without a window, driven through the DevTools protocol over a pair of pipes."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

INSTALL = "./tools/setup browser"


def find():
    """The browser's path, or None. SPECD_CHROMIUM names another one."""
    for name in (os.environ.get("SPECD_CHROMIUM"), "chromium", "chromium-browser",
                 "google-chrome"):
        path = shutil.which(name) if name else None
        if path:
            return path
    return None


class Chromium:
    """One browser with one page. Events of the page are kept in `events`."""

    def __init__(self, width=1400, height=1000):
        self.folder = tempfile.TemporaryDirectory(prefix="specd-chromium-")
        read_theirs, self.write = os.pipe()
        self.read, write_theirs = os.pipe()
        arguments = [find(), "--headless", "--remote-debugging-pipe", "--disable-gpu",
                     "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
                     "--disable-background-networking", "--hide-scrollbars",
                     f"--user-data-dir={self.folder.name}", f"--window-size={width},{height}"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")  # the sandbox refuses root
        # The browser reads commands from descriptor 3 and writes answers to 4.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (read_theirs, write_theirs)]
        self.process = subprocess.Popen(
            arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(3, 4),
            preexec_fn=lambda: (os.dup2(ends[0], 3), os.dup2(ends[1], 4)))
        for end in (read_theirs, write_theirs, *ends):
            os.close(end)
        self.buffer = bytearray()
        self.events = []
        self.next_id = 0
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target,
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        try:
            self.session = None
            self.call("Browser.close", seconds=10)
            self.process.wait(10)
        except (OSError, TimeoutError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.read)
        os.close(self.write)
        self.folder.cleanup()

    # ---- protocol

    def call(self, method, seconds=120, **params):
        self.next_id += 1
        message = {"id": self.next_id, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write, data):]
        deadline = time.monotonic() + seconds
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.next_id:
                break
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def receive(self, deadline):
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.read], [], [], left)[0]:
                raise TimeoutError("Chromium does not answer")
            data = os.read(self.read, 1 << 20)
            if not data:
                raise OSError("Chromium has ended")
            self.buffer += data
        end = self.buffer.index(b"\0")
        message = json.loads(bytes(self.buffer[:end]))
        del self.buffer[: end + 1]
        return message

    def wait_for_event(self, method, seconds=120):
        deadline = time.monotonic() + seconds
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self.receive(deadline))

    # ---- the page

    def open(self, url):
        """Opens a page in place of the present one and forgets that one's events."""
        for address in ("about:blank", url):
            self.events.clear()
            self.call("Page.navigate", url=address)
            self.wait_for_event("Page.loadEventFired")

    def run(self, script):
        """The value of a JavaScript expression, awaited if it is a promise."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True,
                           returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def click(self, selector):
        """A real click in the middle of an element's first line, after scrolling there."""
        box = self.run(
            "(() => { const element = document.querySelector(%s);"
            " element.scrollIntoView({block: 'center'});"
            " const box = element.getClientRects()[0];"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()" % json.dumps(selector))
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left",
                      clickCount=1)
        self.settle()

    def press(self, key, **options):
        codes = {"ArrowLeft": 37, "ArrowRight": 39, "ArrowUp": 38, "ArrowDown": 40, "Escape": 27,
                 "Enter": 13}
        for kind in ("keyDown", "keyUp"):
            event = {"type": kind, "key": key, "windowsVirtualKeyCode": codes.get(key, 0),
                     **options}
            if kind == "keyDown" and (len(key) == 1 or key == "Enter"):
                event["text"] = "\r" if key == "Enter" else key
            self.call("Input.dispatchKeyEvent", **event)
        self.settle()

    def type(self, text):
        self.call("Input.insertText", text=text)

    def settle(self):
        """Waits until the page has drawn twice."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def problems(self):
        """Errors in the console, and requests other than for the page itself."""
        self.settle()
        found = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"].get("exception", {}).get("description"))
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                found.append(f"console: {params['args']}")
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(f"log: {params['entry']['text']}")
            elif method == "Network.requestWillBeSent" and params.get("type") != "Document":
                found.append(f"request: {params['request']['url']}")
        return found

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.settle()

    def prefer(self, scheme):
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.settle()
