"""A headless Chromium that is driven through a pipe: it needs no package, only the browser."""

import base64
import json
import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-dev-shm-usage",
)


def executable():
    """The browser's path, or None."""
    named = os.environ.get("CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One tab, and everything that it complains about."""

    def __init__(self, reading, writing):
        self.reading, self.writing, self.last, self.held = reading, writing, 0, b""
        self.complaints, self.requests, self.loaded = [], [], False
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method, **parameters):
        """Send a command; return its answer."""
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        os.write(self.writing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.last:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, path: Path, width, height=800, dark=False):
        """Load a page in a window of a size, by day or by night."""
        self.complaints, self.requests, self.loaded = [], [], False
        phone = width < 600
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.ask("Emulation.setTouchEmulationEnabled", enabled=phone)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", features=features)
        for url in (
            "about:blank",
            path.resolve().as_uri(),
        ):  # the first one's event may come late: it is waited for too
            self.loaded = False
            self.ask("Page.navigate", url=url)
            while not self.loaded:
                self._next()
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 300)))")

    def evaluate(self, expression):
        """Return the value of an expression of JavaScript; a promise is waited for."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path):
        """Write a picture of the whole page."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        answer = self.ask("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _next(self):
        while b"\0" not in self.held:
            got = os.read(self.reading, 1 << 16)
            assert got, "the browser has gone"
            self.held += got
        line, _, self.held = self.held.partition(b"\0")
        message = json.loads(line)
        method, about = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(about["exceptionDetails"])
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning"):
            self.complaints.append(about["args"])
        elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.complaints.append(about["entry"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        return message


@contextmanager
def launched(folder: Path):
    """Start the browser with a profile in ``folder``; end it afterwards."""
    (in_, to_browser), (from_browser, out) = os.pipe(), os.pipe()

    def hand_over():
        # The browser reads commands from descriptor 3 and answers on 4; the pipes' own numbers may be these.
        high = [os.dup2(in_, 103), os.dup2(out, 104)]
        os.dup2(high[0], 3)
        os.dup2(high[1], 4)

    command = [executable(), *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={folder}"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, preexec_fn=hand_over, close_fds=False, **quiet)
    os.close(in_)
    os.close(out)
    try:
        yield Browser(from_browser, to_browser)
    finally:
        process.terminate()
        process.wait(30)
        os.close(from_browser)
        os.close(to_browser)
