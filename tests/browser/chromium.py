"""Drives a headless Chromium through the DevTools protocol, over a pair of pipes.

Needs the Debian packages chromium and python3, nothing else: with --remote-debugging-pipe the
browser reads commands from file descriptor 3 and writes answers to 4, as JSON texts that end in a
zero byte. https://chromedevtools.github.io/devtools-protocol/
"""

import base64
import json
import os
import select
import subprocess
import tempfile
import time

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--mute-audio",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--remote-debugging-pipe",
]


class Chromium:
    """One browser with one page. Collects everything that goes wrong on the page in `problems`."""

    def __init__(self, program="chromium", deadline=120):
        self.deadline = deadline  # seconds for any one answer
        self.problems = []
        self.requests = []
        self._profile = tempfile.TemporaryDirectory(prefix="penstock-browser-", ignore_cleanup_errors=True)
        self._buffer = b""
        self._next_id = 1
        self._session = None
        self._start(program)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def _start(self, program):
        commands_out, self._commands = os.pipe()
        self._answers, answers_in = os.pipe()

        def place_pipes():
            # First out of the way of each other, then where the browser looks for them.
            commands, answers = os.dup(commands_out), os.dup(answers_in)
            os.dup2(commands, 3)
            os.dup2(answers, 4)

        self._process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"],
            preexec_fn=place_pipes,
            pass_fds=(3, 4),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands_out)
        os.close(answers_in)

    def close(self):
        try:
            self._session = None
            self.call("Browser.close")
        except (OSError, RuntimeError):
            pass
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._commands)
        os.close(self._answers)
        self._profile.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def call(self, method, **parameters):
        """Sends a command and returns its result."""
        message = {"id": self._next_id, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._next_id += 1
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + self.deadline
        while True:
            answer = self._read_message(end, method)
            if answer.get("id") != message["id"]:
                self._note(answer)
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            return answer["result"]

    def _read_message(self, end, method):
        while b"\0" not in self._buffer:
            left = end - time.monotonic()
            ready, _, _ = select.select([self._answers], [], [], max(0, left))
            if not ready:
                raise RuntimeError(f"{method}: no answer from Chromium within {self.deadline} s")
            piece = os.read(self._answers, 1 << 16)
            if not piece:
                raise RuntimeError(f"{method}: Chromium has ended")
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def _note(self, event):
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            text = details.get("exception", {}).get("description", details["text"])
            self.problems.append(f"exception: {text}")
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            values = [str(value.get("value", value.get("description"))) for value in parameters["args"]]
            self.problems.append(f"console: {' '.join(values)}")
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.problems.append(f"log: {parameters['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def evaluate(self, expression):
        """The value of a JavaScript expression; a promise is awaited."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    def open(self, path, width=1920, height=1080):
        """Loads a file and waits until it has drawn itself."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.problems.clear()
        self.requests.clear()
        self.call("Page.navigate", url=path.absolute().as_uri())
        self.wait_for("document.readyState === 'complete' && globalThis.penstockReport !== undefined")
        self.settle()

    def wait_for(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not self.evaluate(f"Boolean({condition})"):
            if time.monotonic() > end:
                raise RuntimeError(f"{condition}: not true within {seconds} s; {self.problems}")
            time.sleep(0.02)

    def settle(self):
        """Waits for what is due to be drawn."""
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def press(self, key, code=None, text=None, modifiers=0):
        keys = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9, "Enter": 13,
                "Escape": 27, "Home": 36, "End": 35, " ": 32}
        number = keys.get(key, ord(key[0].upper()) if len(key) == 1 else 0)
        if text is None and len(key) == 1:
            text = key
        more = {"text": text} if text else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=code or key,
                  windowsVirtualKeyCode=number, modifiers=modifiers, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=code or key,
                  windowsVirtualKeyCode=number, modifiers=modifiers)

    def screenshot(self, path, whole_page=False):
        more = {}
        if whole_page:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            more["clip"] = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole_page, **more)
        path.write_bytes(base64.b64decode(shot["data"]))
