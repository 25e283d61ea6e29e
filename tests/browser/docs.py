"""Tries the page at /docs of a running server in headless Chromium: what it lists, and what its forms are answered with.

    apt install chromium chromium-driver
    pip install -r tests/browser/requirements.txt
    python tests/browser/docs.py http://127.0.0.1:8080

The server must serve the digits model. Exit code 0 when every check passed, 1 otherwise.
"""

import argparse
import json
import shlex
import subprocess
import sys
import urllib.request

from page import Checks, Page
from selenium.webdriver.common.by import By


def attempt(page, operation):
    """Opens the form of an operation and sends it: the status line, the command for a shell, and the answer."""
    details = page.find(operation)
    page.run("arguments[0].open = true; arguments[0].scrollIntoView()", details)
    details.find_element(By.TAG_NAME, "button").click()
    status = details.find_element(By.CSS_SELECTOR, "[role=status]")
    page.wait(lambda: status.text, "a status")
    command, answer = (element.text for element in details.find_elements(By.TAG_NAME, "pre"))
    return status.text, command, answer


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("url")
    url = parser.parse_args().url
    checks = Checks()
    with urllib.request.urlopen(f"{url}/openapi.json") as answer:
        document = json.load(answer)
    with Page(f"{url}/docs", 900, 900) as page:
        page.wait(lambda: page.all("main details"), "the operations are listed")
        listed = len(page.all("main details"))
        wanted = sum(len(methods) for methods in document["paths"].values())
        checks.check("every operation is listed", listed == wanted, f"{listed} of {wanted}")
        for operation, member in [("live", "live"), ("ready", "ready"), ("modelOfVersion", "inputs"), ("index", 0)]:
            status, _, answer = attempt(page, operation)
            checks.check(f"{operation} is answered", status.startswith("200 ") and json.loads(answer)[member], status)
        status, command, answer = attempt(page, "infer")
        outputs = json.loads(answer).get("outputs", [])
        checks.check("the example of a request is answered", status.startswith("200 ") and len(outputs[0]["data"]) == 10, status)
        said = subprocess.run(shlex.split(command) + ["-s"], capture_output=True, text=True, check=True).stdout
        checks.check("its command does the same in a shell", json.loads(said)["outputs"] == outputs)
        status, _, answer = attempt(page, "predict")
        checks.check("a refusal is shown with its reason", status.startswith("400 ") and json.loads(answer)["error"], status)
        page.resize(360, 800)
        width, shown = page.widths()
        checks.check("it fits a narrow window", width <= shown, f"{width} of {shown}")
        errors = [error for error in page.errors() if "400" not in error]
        checks.check("the console has no errors", not errors, errors)
    sys.exit(checks.exit_code())


if __name__ == "__main__":
    main()
