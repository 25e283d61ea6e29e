"""Tries the page at /docs of a running server in headless Chromium: what it lists, and what its forms are answered with.

    apt install chromium chromium-driver
    pip install -r tests/browser/requirements.txt
    python tests/browser/docs.py http://127.0.0.1:8080

The server must serve the digits model. Exit code 0 when every check passed, 1 otherwise.
"""

import argparse
import json
import pathlib
import shlex
import subprocess
import sys
import urllib.request

from page import Checks, Page
from selenium.webdriver.common.by import By


# How a model that takes any body is asked, as the document has it where one is served.
ANY_BODY = "/models/{model}"
DOCUMENT = pathlib.Path(__file__).parents[2] / "src/server/docs/openapi.json"

# The document has that too, and what is asked so is not sent but kept.
WITH_ANY_BODY = """
const real = window.fetch;
window.fetch = async (url, options) => {
  if (new URL(url).pathname.startsWith("/models/")) {
    window.sent = { url: String(url), headers: options.headers, body: options.body };
    return new Response("heard");
  }
  const answer = await real(url, options);
  if (!String(url).endsWith("openapi.json")) return answer;
  const document = await answer.json();
  document.paths[PATH] = WHAT;
  return new Response(JSON.stringify(document));
};
"""


def attempt(page, operation):
    """Opens the form of an operation and sends it: the status line, the command for a shell, and the answer."""
    details = page.find(operation)
    page.run("arguments[0].open = true; arguments[0].scrollIntoView()", details)
    details.find_element(By.TAG_NAME, "button").click()
    status = details.find_element(By.CSS_SELECTOR, "[role=status]")
    page.wait(lambda: status.text, "a status")
    command, answer = (element.text for element in details.find_elements(By.TAG_NAME, "pre"))
    return status.text, command, answer


def check_any_body(page, checks):
    """The form of a model that takes any body."""
    what = json.loads(DOCUMENT.read_text())["paths"][ANY_BODY]
    script = WITH_ANY_BODY.replace("PATH", json.dumps(ANY_BODY)).replace("WHAT", json.dumps(what))
    page.browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
    page.browser.refresh()
    details = page.wait(lambda: page.find("ask"), "the operation")
    page.run("arguments[0].open = true", details)
    bodies = details.find_elements(By.TAG_NAME, "textarea")
    checks.check("a model that takes any body has a place for it", len(bodies) == 1, len(bodies))
    for body in bodies:
        body.send_keys("@two\nlines")
    timeout = next(label for label in details.find_elements(By.TAG_NAME, "label") if label.text.startswith("timeout"))
    timeout.find_element(By.TAG_NAME, "input").send_keys("9000")
    status, command, _ = attempt(page, "ask")
    sent = page.run("return window.sent")
    checks.check("the body is sent as it is", status.startswith("200") and sent.get("body") == "@two\nlines", sent)
    asked = sent["url"].endswith("?timeout=9000") and sent["headers"] == {}
    checks.check("what belongs into the query is there", asked, [sent["url"], sent["headers"]])
    checks.check("its command has both", "?timeout=9000'" in command and "--data-raw '@two\nlines'" in command, command)


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
        check_any_body(page, checks)
        errors = [error for error in page.errors() if "400" not in error]
        checks.check("the console has no errors", not errors, errors)
    sys.exit(checks.exit_code())


if __name__ == "__main__":
    main()
