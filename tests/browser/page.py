"""A page of a running server in headless Chromium, and a list of checks. Used by the scripts beside this file."""

import os
import shutil
import tempfile

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

WAIT_S = 20


class Page:
    """One browser window."""

    def __init__(self, url, width, height, dark=False):
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or "chromium"
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        options.add_argument(f"--user-data-dir={self.profile.name}")
        for flag in ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server", "--hide-scrollbars"]:
            options.add_argument(flag)
        if os.geteuid() == 0:
            options.add_argument("--no-sandbox")  # Chromium's sandbox does not run for root
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
        self.browser = webdriver.Chrome(options=options, service=service)
        self.resize(width, height)
        self.colours(dark)
        self.browser.get(url)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.browser.quit()
        self.profile.cleanup()

    def resize(self, width, height):
        """The size of the page itself, also below the width at which a desktop window stops shrinking."""
        self.browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def colours(self, dark):
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def find(self, element_id):
        return self.browser.find_element(By.ID, element_id)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def text(self, element_id):
        return self.find(element_id).text

    def run(self, script, *arguments):
        return self.browser.execute_script(script, *arguments)

    def wait(self, condition, what):
        """Waits until the condition holds. What the page redraws meanwhile may vanish under it: it is asked again."""

        def holds(_):
            try:
                return condition()
            except Exception as error:
                if type(error).__name__ in ("StaleElementReferenceException", "NoSuchElementException"):
                    return False
                raise

        return WebDriverWait(self.browser, WAIT_S, poll_frequency=0.02).until(holds, f"waited for: {what}")

    def widths(self):
        """How wide the page is, and how wide it is shown."""
        return self.run("const d = document.documentElement; return [d.scrollWidth, d.clientWidth]")

    def screenshot(self, file):
        """The whole page, also what is below the window."""
        width, height = self.run("const d = document.documentElement; return [d.clientWidth, d.scrollHeight]")
        self.resize(width, height)
        self.browser.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))")
        self.browser.save_screenshot(file)

    def errors(self):
        """What the console holds of errors, those of a server aside that was down."""
        entries = [entry["message"] for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"]
        return [message for message in entries if "ERR_CONNECTION_REFUSED" not in message]


class Checks:
    """Counts and prints what passed and what failed."""

    def __init__(self):
        self.passed = self.failed = 0

    def check(self, name, ok, detail=""):
        self.passed += bool(ok)
        self.failed += not ok
        print(f"{'ok  ' if ok else 'FAIL'}  {name}{f'  ({detail})' if detail != '' else ''}", flush=True)

    def exit_code(self):
        print(f"{self.passed} passed, {self.failed} failed")
        return 1 if self.failed or not self.passed else 0
