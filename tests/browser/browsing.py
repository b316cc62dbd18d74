"""Chromium as the tests use it: what a page did wrong, and what keeps people out of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import attrs
from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, ViewportSize

CHROMIUM: Final = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
PATIENCE_MS: Final = 60_000
DISABLED: Final = (
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup"),  # they start a process for each window, and take half of its time
    *(
        "AimEnabled",
        "AvoidUnnecessaryBeforeUnloadCheckSync",
        "DestroyProfileOnBrowserClose",
        "HttpsFirstBalancedModeAutoEnable",
    ),
    *("HttpsUpgrades", "LensOverlay", "MediaRouter", "NetworkTimeServiceQuerying", "OptimizationHints", "PaintHolding"),
    *("PreconnectToSearch", "ThirdPartyStoragePartitioning"),
)
"""Features of Chromium. It has only the last such option, so those that Playwright disables are here too."""
OPTIONS: Final = ("--disable-dev-shm-usage", "--disable-gpu", f"--disable-features={','.join(DISABLED)}")
"""Without a graphics processor it would imitate one, which takes a sixth of a test's time."""
AS_ROOT: Final = ("--no-sandbox",)
"""Chromium has no sandbox for root."""
WINDOW: Final[ViewportSize] = {"width": 1280, "height": 720}
CRITERIA: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
NOTE_VIOLATIONS: Final = """
window.violations_ = [];
addEventListener("securitypolicyviolation", (event) => violations_.push(`${event.violatedDirective} ${event.blockedURI}`));
"""
AXE: Final = """
async (tags) => (await axe.run(document, { runOnly: tags })).violations
  .map(({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.target} ${node.failureSummary}`).join("; ")}`)
"""


def chromium_path() -> str | None:
    """The system's own."""
    return next((found for name in CHROMIUM if (found := shutil.which(name)) is not None), None)


def launched(playwright: Playwright, path: str) -> Browser:
    return playwright.chromium.launch(executable_path=path, args=[*OPTIONS, *(AS_ROOT if os.getuid() == 0 else ())])


@attrs.define(eq=False)
class Opened:
    """A page of a console, and all that it complained of."""

    page: Page
    address: str
    complaints: list[str] = attrs.field(factory=list)

    def go(self, path: str) -> Page:
        """Open a URL, and wait until its view is drawn."""
        self.page.goto(f"http://{self.address}{path}")
        self.page.locator("main h1").first.wait_for()
        return self.page

    def show(self, path: str, *, color_scheme: Literal["light", "dark"] = "light", viewport: ViewportSize = WINDOW) -> Page:
        """Open a URL as a page of its own would show it, in a quarter of the time. Earlier complaints are dropped."""
        self.page.emulate_media(color_scheme=color_scheme)
        self.page.set_viewport_size(viewport)
        self.complaints.clear()
        return self.go(path)

    def check_quiet(self) -> None:
        """Neither errors nor anything that the policy forbids."""
        complaints = [*self.complaints, *self.page.evaluate("violations_")]
        assert not complaints, "\n".join(complaints)

    def check_accessible(self) -> None:
        """No violation of WCAG 2.2 AA that axe finds."""
        found = self.page.evaluate(AXE, list(CRITERIA))
        assert not found, "\n".join(found)


@contextmanager
def opened(
    browser: Browser, address: str, axe: Path | None = None, *, scripts: Sequence[str] = (), **context: Any
) -> Iterator[Opened]:
    """A page of its own, with `scripts` that run before its own; `context`: of Playwright, such as `color_scheme`."""
    chosen = browser.new_context(**{"reduced_motion": "reduce", "timezone_id": "Europe/Berlin", "viewport": WINDOW, **context})
    try:
        chosen.set_default_timeout(PATIENCE_MS)
        for script in (NOTE_VIOLATIONS, *scripts, *([] if axe is None else [axe.read_text()])):
            chosen.add_init_script(script)
        found = Opened(chosen.new_page(), address)

        def note(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                found.complaints.append(f"{message.type}: {message.text}")

        found.page.on("console", note)
        found.page.on("pageerror", lambda error: found.complaints.append(f"uncaught: {error}"))
        yield found
    finally:
        chosen.close()
