"""Headless Chromium, driven by the DevTools protocol over a WebSocket: no driver and no further package is needed."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

MISSING = "no Chromium is installed: `apt-get install chromium`"
"""Reason of skipped tests."""

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-port=0", "about:blank"),
)

WIDE, NARROW = (1440, 900), (390, 844)

SECONDS = 120.0
"""Longest wait for an answer of the browser, and for a condition of a page."""


class Browser:
    """One tab. `problems` holds errors of scripts and violations of the Content-Security-Policy."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._number = socket, 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._loaded = asyncio.Event()
        self.problems: list[str] = []

    async def listen(self) -> None:
        """Take in answers and events until the socket closes."""
        async for message in self._socket:
            answer = json.loads(message.data)
            if (future := self._waiting.pop(answer.get("id", -1), None)) is not None:
                if not future.done():
                    future.set_result(answer)
            elif answer.get("method") == "Page.loadEventFired":
                self._loaded.set()
            elif answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.problems.append(json.dumps(answer["params"])[:500])

    async def send(self, method: str, **parameters: Any) -> Any:
        """Send a command and return its result."""
        self._number += 1
        future = self._waiting[self._number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        async with asyncio.timeout(SECONDS):
            answer = await future
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    async def open(self, url: str) -> None:
        """Load a page, its scripts included."""
        self._loaded.clear()
        await self.send("Page.navigate", url=url)
        async with asyncio.timeout(SECONDS):
            await self._loaded.wait()

    async def run(self, script: str) -> Any:
        """Return the value of an expression, or of the promise that it is."""
        answer = await self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, script: str) -> None:
        """Wait until an expression is true."""
        async with asyncio.timeout(SECONDS):
            while True:
                if await self.run(script):
                    return
                await asyncio.sleep(0.05)

    async def press(self, key: str) -> None:
        """Press a key that has a name, such as Tab or Enter."""
        code, text = {"Tab": 9, "Enter": 13, "ArrowRight": 39}[key], "\r" if key == "Enter" else ""
        for kind in ("keyDown", "keyUp"):
            await self.send(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text
            )

    async def click(self, x: float, y: float) -> None:
        """Click at a point of the window."""
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = "none" if kind == "mouseMoved" else "left"
            await self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=1)

    async def look(self, size: tuple[int, int], scheme: str = "light") -> None:
        """Set the size of the window, and the preference for `light` or `dark`."""
        width, height = size
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        await self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def picture(self, whole: bool = True) -> bytes:
        """Return the page, or the part of it in the window, as PNG."""
        options: dict[str, Any] = {"format": "png"}
        if whole:
            size = (await self.send("Page.getLayoutMetrics"))["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 4000), "scale": 1}
            options |= {"captureBeyondViewport": True, "clip": clip}
        answer = await self.send("Page.captureScreenshot", **options)
        return base64.b64decode(answer["data"])


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Start Chromium with a profile of its own, and end it with the block."""
    assert CHROMIUM is not None, MISSING
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = (CHROMIUM, f"--user-data-dir={profile}", *FLAGS)
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(*command, stdout=nothing, stderr=pipe)
        try:
            async with asyncio.timeout(60), aiohttp.ClientSession() as session:
                port = await _port(process)
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    pages = await answer.json(content_type=None)
                address = next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")
            async with aiohttp.ClientSession() as session, session.ws_connect(address, max_msg_size=0) as socket:
                tab = Browser(socket)
                listening = asyncio.create_task(tab.listen())
                for domain in ("Page", "Runtime", "Log"):
                    await tab.send(f"{domain}.enable")
                yield tab
                listening.cancel()
        finally:
            process.terminate()
            await process.wait()


async def _port(process: asyncio.subprocess.Process) -> int:
    """Return the port of the DevTools that Chromium prints when it is ready."""
    assert process.stderr is not None
    while line := await process.stderr.readline():
        if b"DevTools listening on " in line:
            return int(line.decode().split("//")[1].split("/")[0].rpartition(":")[2])
    raise AssertionError("Chromium ended before it was ready")
