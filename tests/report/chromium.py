"""A headless Chromium, driven by the DevTools protocol over its pipe: no port, no driver, no package."""

import base64
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

_CHECK = Path(__file__).parents[2] / "scripts" / "check_environment.sh"
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps",
    "--disable-extensions", "--disable-dev-shm-usage", "--hide-scrollbars", "--force-device-scale-factor=1",
    "--remote-debugging-pipe",
)  # fmt: skip
_PATIENCE_S = 600
# The browser reads from descriptor 3 and writes to 4; ours have other numbers, which may be these.
_AS_3_AND_4 = """
import fcntl, os, sys
far = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for place, number in enumerate(far, 3):
    os.dup2(number, place)
    os.close(number)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Chromium:
    """One browser with a profile of its own; `close` ends it."""

    def __init__(self, profile: Path) -> None:
        found = subprocess.run([_CHECK, "chromium"], capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stderr
        name = found.stdout.strip()
        commands, to_browser = os.pipe()
        from_browser, answers = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _AS_3_AND_4, str(commands), str(answers), name, *_FLAGS,
             f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(commands, answers), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(commands)
        os.close(answers)
        self._write, self._read = to_browser, from_browser
        self._rest = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the browser."""
        with suppress(OSError, AssertionError):
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """What the browser answers; events that come meanwhile are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        number, deadline = self._number, time.monotonic() + _PATIENCE_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def wait_for(self, method: str, session: str) -> None:
        """Returns once the event came, now or before."""
        deadline = time.monotonic() + _PATIENCE_S
        while not any(event.get("method") == method and event.get("sessionId") == session for event in self.events):
            self.events.append(self._next(deadline))

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(deadline - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            data = os.read(self._read, 1 << 20)
            assert data, "the browser has ended"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def open(self, path: Path, *, width: int = 1200, height: int = 900, is_dark: bool = False,
             runs_scripts: bool = True) -> "Page":  # fmt: skip
        """A page of a file, loaded, in a tab of its own."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setScriptExecutionDisabled", value=not runs_scripts)
        page.set_size(width, height)
        page.set_dark(is_dark)
        page.call("Page.navigate", url=path.resolve().as_uri())
        self.wait_for("Page.loadEventFired", session)
        return page


class Page:
    """One loaded page, and all that its browser said of it."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command to this page."""
        return self._browser.call(method, self._session, **parameters)

    def value(self, expression: str) -> Any:
        """The value of an expression in the page, a promise's once it is kept."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def settle(self) -> None:
        """Returns after the page was laid out and painted twice: resizing is noticed then."""
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def set_size(self, width: int, height: int) -> None:
        """The size of the window, in CSS pixels; a narrow one is a phone's."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)  # fmt: skip

    def set_dark(self, is_dark: bool) -> None:
        """Which scheme of colours the user prefers."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path, height_max: int = 16_000) -> None:
        """The whole page as a PNG."""
        self.settle()
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], height_max), "scale": 1}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def events(self, *methods: str) -> list[Mapping[str, Any]]:
        """The parameters of all events of these names so far."""
        self.value("1")  # what was said before this answer has come by now
        return [
            event["params"]
            for event in self._browser.events
            if event.get("sessionId") == self._session and event.get("method") in methods
        ]

    def complaints(self) -> Sequence[Mapping[str, Any]]:
        """Console messages of any level, exceptions, breaches of the policy, and other issues."""
        return self.events("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Audits.issueAdded")

    def requests(self) -> list[str]:
        """The addresses that the page asked for."""
        return [event["request"]["url"] for event in self.events("Network.requestWillBeSent")]


Open = Callable[..., Page]
