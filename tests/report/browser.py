"""A headless Chromium that tests drive through the DevTools protocol, over a pair of pipes."""

import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROME = os.environ.get("CHROME") or next(filter(None, map(shutil.which, NAMES)), None)
needs_chrome = pytest.mark.skipif(CHROME is None, reason="needs Chromium: none found, and CHROME is not set")


class Browser:
    """One page of one browser. `problems` collects errors and messages of the page's console."""

    def __init__(self, profile: Path) -> None:
        assert CHROME is not None
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for pair in (os.pipe(), os.pipe()) for end in pair]
        read, self._write, self._read, write = ends

        def connect() -> None:
            os.dup2(read, 3)
            os.dup2(write, 4)

        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"]
        self._process = subprocess.Popen(
            [CHROME, *options, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=connect,
            close_fds=False,  # all other descriptors of Python are closed by exec
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self._messages = os.fdopen(self._read, "rb")
        self._number, self._session, self._rest = 0, "", b""
        self.problems: list[str] = []
        self.events: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._messages.close()
        os.close(self._write)

    def send(self, method: str, **parameters: Any) -> Any:
        """Sends a command and returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._messages.fileno(), 1 << 16)
            assert data, "the browser has ended"
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        method = message.get("method", "")
        self.events.append(method)
        if method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.problems.append(json.dumps(message["params"]))
        if method == "Network.requestWillBeSent" and not message["params"]["request"]["url"].startswith("file:"):
            self.problems.append(message["params"]["request"]["url"])
        return message

    def open(self, path: Path, width: int = 390, scheme: str = "light", script: bool = True) -> None:
        """Opens a page and waits until it has loaded."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=True)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.send("Emulation.setScriptExecutionDisabled", value=not script)
        self.events.clear()
        self.problems.clear()
        self.send("Page.navigate", url=path.absolute().as_uri())
        while "Page.loadEventFired" not in self.events:
            self._receive()

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page, after waiting for a promise."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        """Presses a key."""
        for kind in ("keyDown", "keyUp"):
            own = {"text": text} if text and kind == "keyDown" else {}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **own)
