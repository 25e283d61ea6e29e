"""Starts a server, loads it, and checks in headless Chromium that its page at / shows what happens.

    apt install chromium chromium-driver
    pip install -r tests/browser/requirements.txt
    python tests/browser/live_page.py target/release/uncork [--pictures FOLDER]

Exit code 0 when every check passed, 1 otherwise.
"""

import argparse
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request

from page import Checks, Page
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

DIGITS = pathlib.Path(__file__).parents[2] / "examples/digits/digits.onnx"
CONFIGURATION = f"""
[[model]]
name = "digits"
path = "{DIGITS}"

[[model]]
name = "dry-run"
synthetic = {{ base_ms = 2.0, per_row_ms = 0.05 }}
max_latency_ms = 25
max_batch_size = 64
"""
READY_S = 60
SCRIPT_S = 120  # for many requests one after the other, on a machine that is busy otherwise
CALLERS = 6  # at once for each model: enough for batches of several rows
ENOUGH_ANSWERS = 300  # of a model, before the page is looked at
REFUSED = 12  # requests that cannot be in time
ROWS = {"digits": ("pixels", 64), "dry-run": ("x", 1)}
CALM_S = 10  # that the words of a plot are about
LEAST_CONTRAST = 4.5  # WCAG AA for text
PLOTS = ["batches", "latency", "outcomes", "waiting", "busy"]


class Server:
    """`uncork serve` with two models, on a port of its own that it keeps over a restart."""

    def __init__(self, program, folder):
        self.program, self.address = program, "127.0.0.1:0"
        self.configuration = pathlib.Path(folder) / "uncork.toml"
        self.configuration.write_text(CONFIGURATION)
        self.start()

    def start(self):
        command = [self.program, "serve", "--config", str(self.configuration), "--http", self.address]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        watchdog = threading.Timer(READY_S, self.process.kill)
        watchdog.start()
        line = self.process.stdout.readline()
        watchdog.cancel()
        self.address = re.search(r"http://([\d.:]+)", line)[1]
        self.url = f"http://{self.address}/"

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(READY_S)

    def status(self, model):
        with urllib.request.urlopen(self.url + "status") as answer:
            return next(m for m in json.load(answer)["models"] if m["name"] == model)


class Load:
    """Callers that ask one thing after the other until told to stop."""

    def __init__(self, server):
        self.server, self.stopping, self.answers = server, False, dict.fromkeys(ROWS, 0)
        self.threads = [threading.Thread(target=self.call, args=(model,)) for model in ROWS for _ in range(CALLERS)]
        for thread in self.threads:
            thread.start()

    def call(self, model):
        connection = http.client.HTTPConnection(self.server.address)
        while not self.stopping:
            if infer(connection, model) == 200:
                self.answers[model] += 1
        connection.close()

    def stop(self):
        self.stopping = True
        for thread in self.threads:
            thread.join()


def infer(connection, model, **parameters):
    name, length = ROWS[model]
    request = {"parameters": parameters, "inputs": [{"name": name, "shape": [1, length], "datatype": "FP32", "data": [1] * length}]}
    connection.request("POST", f"/v2/models/{model}/infer", json.dumps(request))
    answer = connection.getresponse()
    answer.read()
    return answer.status


def refuse(server, model):
    """Sends what cannot be answered in time: each is to be answered within a microsecond."""
    connection = http.client.HTTPConnection(server.address)
    statuses = {infer(connection, model, timeout=1) for _ in range(REFUSED)}
    connection.close()
    assert statuses == {503}, statuses


def choose(page, model):
    label = page.wait(lambda: next((one for one in page.all("#models label") if one.text.startswith(model)), None), f"{model} to choose")
    label.click()
    page.wait(lambda: page.text("name") == model, f"{model} is shown")


def marks(page, panel, kind="[data-marks]"):
    """How many values the plot of a panel shows."""
    return page.run(
        "return [...document.querySelectorAll(arguments[0])].reduce((sum, path) => sum + Number(path.dataset.marks), 0)",
        f"#{panel} path{kind}",
    )


def numbers(text):
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\.?\d*", text)]


def check_before_traffic(page, checks):
    page.wait(lambda: "loadtest" in page.text("quiet"), "how to make traffic")
    for name in PLOTS[:3]:
        empty = page.find(name).find_element(By.CSS_SELECTOR, "svg .empty").text
        checks.check(f"without traffic, {name} says so", empty.endswith("in the last two minutes"), empty)
    page.wait(lambda: page.find("drawing").is_displayed(), "the digit to draw")
    page.resize(360, 900)
    checks.check(
        "360 px: the notice is not above the canvas, which it would move when it goes",
        page.find("quiet").rect["y"] > page.find("canvas").rect["y"] + page.find("canvas").rect["height"],
    )
    page.resize(1280, 900)
    page.wait(lambda: page.find("batches").rect["width"] > 700, "the wide page")
    place = page.find("canvas").rect
    command = page.wait(lambda: "inputs" in page.text("quiet-curl") and page.text("quiet-curl"), "a request with curl")
    answer = subprocess.run(["bash", "-c", command + " -s"], capture_output=True, text=True, check=True).stdout
    checks.check("the request shown is one that the server answers", "probabilities" in answer, answer[:80])
    page.wait(lambda: not page.find("quiet").is_displayed(), "the notice goes")
    page.wait(lambda: marks(page, "batches") == 1, "the one batch is shown")
    checks.check("the canvas stays where it was when the notice goes", page.find("canvas").rect == place, [place, page.find("canvas").rect])


def check_plots(page, checks, model):
    page.wait(lambda: marks(page, "latency", ".p99") >= 3, "three seconds of latency")
    for name, kind in [("batches", "[class^=h]"), ("latency", ".p50"), ("latency", ".p99"), ("outcomes", ".on-time"), ("busy", ".stroke")]:
        checks.check(f"{model}: {name} {kind} shows values", marks(page, name, kind) > 0, marks(page, name, kind))
    checks.check(
        f"{model}: samples stand around the line",
        len(page.all("#fit .sample")) >= 3 and len(page.all("#fit .line")) >= 1,
        len(page.all("#fit .sample")),
    )
    inside = page.run("""return [...document.querySelectorAll(".panels svg")].map((svg) => {
        const ground = svg.querySelector(".ground").getBBox();
        return [...svg.querySelectorAll("path, circle.sample")].every((shape) => {
          const box = shape.getBBox();
          return box.x >= ground.x - 4 && box.x + box.width <= ground.x + ground.width + 4
            && box.y >= ground.y - 4 && box.y + box.height <= ground.y + ground.height + 4;
        });
      })""")
    checks.check(f"{model}: nothing is drawn outside of its plot", len(inside) == 6 and all(inside), inside)
    for name in [*PLOTS, "fit"]:
        words = page.text(f"{name}-words")
        checks.check(f"{model}: the words of {name} have figures", len(numbers(words)) >= 2, words)
        label = page.find(name).find_element(By.CSS_SELECTOR, "svg").get_attribute("aria-label")
        checks.check(f"{model}: the plot of {name} has a name", len(label) > 10, label)
    checks.check(
        f"{model}: colours have a legend", len(page.all("#batches-legend .swatch")) >= 1, page.text("batches-legend").replace("\n", " ")
    )
    tiles = page.find("tiles").text
    checks.check(f"{model}: the tiles have figures", len(page.all("#tiles .figure")) == 6 and "–" not in tiles, tiles.replace("\n", " "))


def check_truth(page, checks, server, model):
    """With the load over: what the page says is what the server says."""
    status = server.status(model)
    totals = status["totals"]
    begin = f"on time {totals['on_time']:,}\nlate {totals['late']:,}\nrefused, no answer in time {totals['shed']:,}"
    own = f"refused, caller's own deadline {totals['own_deadline']:,}"
    page.wait(lambda: page.text("totals").startswith(begin) and own in page.text("totals"), "the server's totals")
    checks.check(f"{model}: totals are the server's", totals["own_deadline"] == REFUSED, page.text("totals").replace("\n", ", "))
    caps = page.text("caps")
    checks.check(
        f"{model}: the caps are shown",
        f"max_latency {status['max_latency_ms']:g} ms" in caps and f"max_batch_size {status['max_batch_size']} rows" in caps,
        caps,
    )
    estimate = status["estimate"]
    shown = numbers(page.text("fit-words"))
    curve = estimate["curve"]
    want = [curve[0][1], curve[0][0], curve[-1][1], curve[-1][0]] if curve else [estimate["base_ms"], estimate["per_row_ms"]]
    near = all(abs(a - b) <= 0.06 * b + 1e-6 for a, b in zip(shown, want, strict=True))
    checks.check(f"{model}: what a batch costs is the server's estimate", near, page.text("fit-words"))
    cells = sum(batches > 0 for column in status["history"]["batches"] for batches in column)
    checks.check(f"{model}: a cell for each size and second", marks(page, "batches") == cells, f"{marks(page, 'batches')} of {cells}")


def table(page, panel):
    """The cells of a table's rows, read at one moment."""
    return page.run(
        "return [...document.querySelectorAll(arguments[0])].map((row) => [...row.cells].map((cell) => cell.innerText))",
        f"#{panel} tbody tr",
    )


def check_tables(page, checks, model):
    rows = table(page, "releases")
    checks.check(f"{model}: the last twenty releases are listed", len(rows) == 20, len(rows))
    sentences = [row[1] for row in rows]
    checks.check(f"{model}: each with a sentence", all(re.match(r"\w+ · .{15,}", text) for text in sentences), sentences[0])
    checks.check(f"{model}: and its figures", len(rows[0]) == 6 and all(numbers(rows[0][at]) for at in (0, 2, 4, 5)), rows[0])
    refusals = page.wait(lambda: table(page, "refusals"), "refusals")
    sentence = refusals[0][1]
    checks.check(f"{model}: with what the last caller was told", "deadline" in sentence.split("\n")[-1], sentence.split("\n")[-1])
    checks.check(
        f"{model}: refusals are listed with a sentence", 1 <= len(refusals) <= 20 and re.match(r"[\w ]+ · .{15,}", sentence), sentence
    )


def check_cursor(page, checks):
    plot = page.find("latency").find_element(By.CLASS_NAME, "plot")
    page.run("arguments[0].focus()", plot)
    plot.send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    page.wait(lambda: page.text("latency-words").startswith("2 s ago"), "the words of a second")
    others = [page.text(f"{name}-words").startswith("2 s ago") for name in PLOTS]
    checks.check("the arrow keys go through the seconds, in all plots at once", all(others) and len(page.all("svg .cursor")) == 5, others)
    checks.check(
        "and they are read aloud",
        page.find("latency-words").get_attribute("aria-live") == "polite"
        and page.find("batches-words").get_attribute("aria-live") == "off",
    )
    plot.send_keys(Keys.ESCAPE)
    page.wait(lambda: page.text("latency-words").startswith(f"last {CALM_S} s"), "the usual words")
    checks.check("Escape takes the cursor away", len(page.all("svg .cursor")) == 0)


def check_keyboard(page, checks):
    """Everything to be used is reached by the Tab key, and shows that it is."""
    page.run("document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute('tabindex')")
    reached, plain = set(), []
    for _ in range(40):
        page.browser.switch_to.active_element.send_keys(Keys.TAB)
        at = page.run("""const e = document.activeElement, around = e.closest("label") ?? e;
            return [e.id || e.closest("[id]")?.id || e.tagName, getComputedStyle(around).outlineStyle, e.tagName]""")
        if at[2] == "BODY":
            break
        reached.add(at[0])
        plain += [] if at[1] != "none" else [at]
    wanted = {"window", "pause", "models", "clear", *PLOTS}
    checks.check("the Tab key reaches all that can be used", wanted <= reached, wanted - reached or "")
    checks.check("and what is reached is outlined", not plain, plain)


def check_looks(page, checks, pictures, model):
    for dark in (False, True):
        page.colours(dark)
        mode = "dark" if dark else "light"
        ground = page.run("return getComputedStyle(document.body).backgroundColor")
        checks.check(f"{mode}: the ground is {mode}", (sum(map(int, re.findall(r"\d+", ground)[:3])) < 384) == dark, ground)
        poor = page.run(CONTRAST, LEAST_CONTRAST)
        checks.check(f"{mode}: words stand out from what is behind them", not poor, poor[:3])
        for width in (1280, 800, 360, 320):
            page.resize(width, 900)
            page.wait(lambda: page.find("batches").find_element(By.CSS_SELECTOR, "svg").rect["width"] < width, "a new drawing")
            scroll, view = page.widths()
            checks.check(f"{mode}, {width} px: nothing scrolls sideways", view == width and scroll <= view, f"{scroll} in {view} px")
            wide = page.run(
                "document.querySelector('#tiles .figure').textContent = '> 99.99 %';"  # the longest that stands there
                "return [...document.querySelectorAll('.panel, #tiles, #tiles > div, label')].filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.id || e.innerText)"
            )
            checks.check(f"{mode}, {width} px: nothing sticks out of its panel", not wide, wide)
            if pictures and width != 320:
                page.screenshot(str(pictures / f"{model}-{mode}-{width}.png"))
    page.colours(False)
    page.resize(1280, 900)


# Texts whose contrast with the nearest painted ground behind them is below the least one.
CONTRAST = """
const light = (colour) => {
  const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const painted = (colour) => !/^rgba\\(.*, 0\\)$/.test(colour) && colour !== "transparent";
const poor = [];
for (const e of document.querySelectorAll("body *")) {
  const own = [...e.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  if (!own || !e.checkVisibility() || e.closest(".spoken, noscript, [aria-hidden]")) continue;
  const style = getComputedStyle(e), is_svg = e instanceof SVGElement;
  let behind = e;
  while (behind && !painted(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
  const a = light(is_svg ? style.fill : style.color), b = light(getComputedStyle(behind ?? document.body).backgroundColor);
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (contrast < arguments[0]) poor.push([e.textContent.trim().slice(0, 30), contrast.toFixed(2)]);
}
return poor;
"""


def check_numbers(page, checks):
    """The arithmetic of the page, against figures found by hand."""
    got = page.browser.execute_async_script("""
        const done = arguments[0];
        import("/page/numbers.js").then((n) => done([
          n.quantile([0, 10, 10, 0], [1, 2, 4], 0.5).value, n.quantile([0, 10, 10, 0], [1, 2, 4], 0.75).value,
          n.quantile([1, 0, 0, 9], [1, 2, 4], 0.5).beyond, n.quantile([0, 0], [1], 0.5),
          [[9, 1, 0], [1, 9, 0], [0, 0, 9]].map((counts) => n.bounded(n.quantile(counts, [600, 800], 0.5))),
          n.percent(0.99999), n.percent(1), n.percent(0.5), n.percent(0.99512), n.percent(0 / 0),
          n.short(0.31), n.short(0.0112, 2), n.short(12345), n.ms(12000), n.bucketName([1, 2, 4], 2), n.bucketName([1, 2, 4], 0),
          n.colourSteps(0), n.colourSteps(9), n.colourSteps(3000).length <= 8, n.ticks(10, 4), n.roundedUp(13),
          n.span(0.021), n.span(90), n.span(3600 * 26),
          [0, 2, 4, 9].map((x) => n.along([[1, 10], [3, 30], [5, 90]], x))]), (error) => done(String(error)));
        """)
    want = [
        2,
        3,
        True,
        None,
        ["< 600 ms", "689 ms", "> 800 ms"],
        "> 99.99 %",
        "100 %",
        "50 %",
        "99.51 %",
        "–",
        "0.31",
        "0.011",
        "12,345",
        "12 s",
        "3–4",
        "1",
        [1],
        [1, 2, 5],
        True,
        [0, 5, 10],
        20,
        "0.02 s",
        "90 s",
        "26 h",
        [10, 20, 60, 90],
    ]
    checks.check(
        "quantiles, steps and written numbers are right",
        got == want,
        [pair for pair in zip(got, want) if pair[0] != pair[1]] if isinstance(got, list) else got,
    )


# The server's status, but for `digits`: every batch has 16 rows of at most 24, half of the answers take as long as the cap allows,
# nothing is on time in the last minute, and the lists are as long as they get.
TROUBLE = """
const real = window.fetch;
window.fetch = async (url, options) => {
  const answer = await real(url, options);
  if (!String(url).startsWith("status")) return answer;
  const status = await answer.json(), model = status.models.find((one) => one.name === "digits");
  const columns = (value) => Array.from({ length: 120 }, () => value);
  Object.assign(model, { max_batch_size: 24, batch_edges: [1, 2, 4, 8, 16, 24], warning: "its smallest batch takes 200 ms" });
  const cap = model.latency_edges_ms.findIndex((edge) => Math.abs(edge - model.max_latency_ms) < 1e-6);
  const latencies = model.latency_edges_ms.map((_, at) => (at === cap ? 9 : 0)).concat(0);
  Object.assign(model.history, { batches: columns([0, 0, 0, 0, 3, 0]), rows: columns(48), largest: columns(16), latency: columns(latencies),
    on_time: columns(0), late: columns(48), refused: columns(500), failed: columns(2), busy: columns(1), queue_rows: columns(7) });
  model.estimate = { base_ms: 1, per_row_ms: 0.5, noise: 1.1, trusted: true, age_s: 3600, timed_rows: [4, 8], is_line: true, samples: [[4, 3], [8, 5]],
    curve: window.is_curved ? [[1, 3], [4, 3], [6, 3], [8, 5], [24, 13]] : null };
  if (window.is_one_size) Object.assign(model.estimate, { base_ms: 3, per_row_ms: 0, timed_rows: [8, 8], is_line: false, samples: [[8, 3]] });
  const told = "refused: the answer would come 131.2 ms after arrival, past the deadline of 100.0 ms; retry in 40 ms";
  model.refusals = columns({ ago_s: 1, reason: "batch_too_late", why: "even the next batch would have answered it late", told, requests: 500 }).slice(0, 20);
  model.releases = columns({ ago_s: 1, rows: 16, requests: 16, reason: "ripe", held_ms: 0, predicted_ms: 9, took_ms: 9,
    why: "waiting for the next request would have cost more than it saved" }).slice(0, 20);
  // What the others really had says something of this machine, and nothing of how they look.
  for (const other of status.models) if (other !== model) Object.assign(other.history, { late: columns(0), refused: columns(0), failed: columns(0) });
  return new Response(JSON.stringify(status));
};
"""
MOST_PX = {1280: 1950, 360: 3900}  # of the page's height, whatever happens

# Pairs of names in a plot that lie on each other.
COLLISIONS = """
return [...document.querySelectorAll(".panels svg")].flatMap((svg) => {
  const texts = [...svg.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
  return texts.flatMap(([name, a], at) => texts.slice(at + 1)
    .filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2)
    .map(([other]) => `${name} | ${other}`));
});
"""


def check_trouble(page, checks):
    """What a model in trouble looks like."""
    page.run(TROUBLE)
    page.wait(lambda: page.text("batches-words").endswith("of 16 rows on average, the largest of 16"), "the batches' rows are counted")
    tiles = page.find("tiles").text
    checks.check("batches that all have 16 rows have 16 on average", "16 rows\nof at most 24" in tiles, tiles.replace("\n", " "))
    label = next(one for one in page.all("#models label") if one.text.startswith("digits"))
    worst = page.run("return getComputedStyle(document.documentElement).getPropertyValue('--bad')")
    dots = [
        one.find_element(By.TAG_NAME, "i").get_attribute("class") for one in page.all("#models label") if not one.text.startswith("digits")
    ]
    looks = label.find_element(By.TAG_NAME, "i").get_attribute("class")
    checks.check("a model with nothing on time looks bad among the others", "0 % on time" in label.text and looks == "health bad", looks)
    checks.check("and the others do not", worst and "health bad" not in dots, dots)
    checks.check("why it cannot keep its cap is said", "its smallest batch takes 200 ms" in page.text("trouble"), page.text("trouble"))
    fit = page.text("fit-more")
    checks.check(
        "the line says between which sizes and when it was learned",
        "batches of 4 to 8 rows, the last 60 min ago" in fit and "a guess" in fit,
        fit,
    )
    guesses = page.run("return [...document.querySelectorAll('#fit .guess')].length")
    checks.check("beyond them it is drawn as a guess", guesses == 2 and page.all("#fit .guess-name"), guesses)
    page.run("window.is_one_size = true")
    page.wait(lambda: "not known" in page.text("fit-words"), "the words of one size")
    known = numbers(page.text("fit-words")), "from 3 ms to 9 ms" in page.text("fit-more")
    checks.check("where one size was timed, a full batch takes as long at least and three times as long at most", known == ([8, 3], True), page.text("fit-more"))
    page.run("window.is_one_size = false; window.is_curved = true")
    page.wait(lambda: "no line" in page.text("fit-words"), "the words of a curve")
    words = page.text("fit-words")
    checks.check("times that are no line are told at both ends", numbers(words) == [3, 1, 13, 24], words)
    bends = page.run("return [...document.querySelectorAll('#fit .line')].map((line) => line.getAttribute('d').split('L').length - 1)")
    checks.check("and drawn as what each size took", bends == [5, 2, 1, 2] and "each size" in page.text("fit-more"), bends)
    for width, most in MOST_PX.items():
        page.resize(width, 900)
        page.wait(lambda w=width: page.find("batches").find_element(By.CSS_SELECTOR, "svg").rect["width"] < w, "a new drawing")
        height = page.run("return document.documentElement.scrollHeight")
        checks.check(f"{width} px: under refusals the page is not longer than {most} px", height <= most, height)
        collisions = page.run(COLLISIONS)
        checks.check(f"{width} px: no two names lie on each other at the cap", not collisions, collisions)
    page.resize(1280, 900)


def check_hour(page, checks):
    """The last hour in place of two minutes."""
    page.find("window").find_element(By.XPATH, "label[2]").click()
    page.wait(lambda: page.text("outcomes-words").startswith("last 5 min"), "the words of an hour")
    axis = page.find("outcomes").find_element(By.CSS_SELECTOR, "svg").text
    checks.check("an hour is shown", "−60 min" in axis and marks(page, "outcomes") > 0, axis.replace("\n", " "))
    page.find("window").find_element(By.XPATH, "label[1]").click()
    page.wait(lambda: page.text("outcomes-words").startswith(f"last {CALM_S} s"), "the words of two minutes")


def asked(page):
    return page.run("return performance.getEntriesByType('resource').filter((e) => e.name.endsWith('/status')).length")


def asked_meanwhile(page):
    """How often the page asks for the status while it asks, one after the other, many other things of the server."""
    page.browser.execute_async_script(MEANWHILE, 3)  # what was under way when the page was told to stop comes in
    before = asked(page)
    page.browser.execute_async_script(MEANWHILE, 50)
    return asked(page) - before


MEANWHILE = """
const [times, done] = arguments;
(async () => { for (let time = 0; time < times; time++) await (await fetch("/v2")).text(); done(); })();
"""


def check_rest(page, checks):
    """Nothing is asked while the page is paused or hidden. Its clock runs a hundred times as fast for that."""
    page.browser.set_script_timeout(SCRIPT_S)
    page.run(
        "performance.setResourceTimingBufferSize(1e6); const real = window.setTimeout; window.setTimeout = (call, ms) => real(call, ms / 100)"
    )
    before = asked(page)
    page.wait(lambda: asked(page) > before + 1, "the fast clock is heard: the pause that was under way is over")
    checks.check("with a fast clock the page asks all the time", asked_meanwhile(page) > 0)
    page.find("pause").click()
    page.wait(lambda: page.text("state") == "paused" and page.text("pause") == "Resume", "paused")
    checks.check("a paused page asks nothing", asked_meanwhile(page) == 0)
    page.find("pause").click()
    page.wait(lambda: page.text("state") == "ready", "ready again")
    checks.check("a page that goes on asks", asked_meanwhile(page) > 0)
    for hidden in ("true", "false"):
        page.run(
            f"Object.defineProperty(document, 'hidden', {{ configurable: true, value: {hidden} }});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )
        asked_meanwhile(page)  # what was asked before is answered by then
        asks = asked_meanwhile(page)
        checks.check(
            "a hidden page asks nothing" if hidden == "true" else "a page that is seen again asks", (asks == 0) == (hidden == "true"), asks
        )
    page.browser.refresh()
    page.wait(lambda: page.text("state") == "ready", "ready with its own clock")


# Every status passes through `altered`, and what a model takes is answered by `told` where that gives an answer. What is asked of
# models is listed.
ALTERED = """
const real = window.fetch;
Object.assign(window, { altered: () => {}, told: () => undefined, of_models: [], statuses: 0 });
window.fetch = async (url, options) => {
  const is_of_model = String(url).startsWith("v2/models/");
  if (is_of_model) of_models.push(url);
  const instead = is_of_model && told(url);
  if (instead) return instead;
  const answer = await real(url, options);
  if (!String(url).startsWith("status")) return answer;
  const status = await answer.json();
  altered(status);
  statuses += 1;
  return new Response(JSON.stringify(status));
};
"""


def check_new_version(page, checks):
    """The model that is shown gets a new version, which its old one goes for."""
    choose(page, "dry-run")
    page.run(ALTERED)
    page.run("""
        told = () => new Response("{}", { status: 403 });
        const version = (status, from, to) => { status.models.find((one) => one.name === "dry-run" && one.version === from).version = to; };
        altered = (status) => {
          status.models.push({ ...status.models.find((one) => one.name === "dry-run") });
          version(status, "1", "9");
          version(status, "1", "10");
        };""")
    page.wait(lambda: any("version 10" in label.text for label in page.all("#models label")), "the new version")
    shown = page.text("name"), page.text("caps").split(",")[0]
    checks.check("where the version is gone, the highest of the same model is shown", shown == ("dry-run", "version 10"), shown)
    page.run("altered = (status) => { status.models = status.models.filter((one) => one.name !== 'dry-run'); }")
    page.wait(lambda: page.text("name") == "digits", "the first model where that one is gone")
    page.browser.refresh()
    page.wait(lambda: page.text("name") == "dry-run", "the model that the address names")


def check_questions(page, checks):
    """How often the page asks what a model takes: once, or every half a minute where it gets no answer."""
    page.run(ALTERED)
    page.run("told = () => new Response('{}', { status: 403 }); altered = (status) => { status.models[0].version = '2'; }")
    choose(page, "digits")
    page.wait(lambda: "version 2," in page.text("caps"), "a model that was not asked about")
    plot = page.find("latency").find_element(By.CLASS_NAME, "plot")
    page.run("arguments[0].focus()", plot)

    def questions():
        """Of a second, with a drawing for each key that is pressed."""
        page.run("of_models.length = statuses = 0")
        page.wait(lambda: page.run("return statuses"), "another status")
        for ago in range(1, 9):
            plot.send_keys(Keys.ARROW_LEFT)
            page.wait(lambda ago=ago: page.text("latency-words").startswith(f"{ago} s ago"), "a new drawing")
        plot.send_keys(Keys.ESCAPE)
        return page.run("return of_models.length")

    page.wait(lambda: page.run("return of_models.length"), "a question")
    checks.check("who was refused is not asked again at each drawing", (asks := questions()) == 0, asks)
    page.run("const real = performance.now.bind(performance); performance.now = () => real() + 30_000")
    checks.check("but half a minute later", (asks := questions()) == 1, asks)
    page.run("told = () => undefined; altered = () => {}")
    page.wait(lambda: "version 1," in page.text("caps"), "the model as it is")
    questions()
    checks.check("what is known is not asked again", (asks := questions()) == 0, asks)
    for what, script in [
        ("a model that was gone is", "status.models = status.models.slice(1)"),
        ("of a server that started again all is", "status.server.uptime_s = 0.5"),
    ]:
        page.run(f"of_models.length = 0; altered = (status) => {{ {script}; altered = () => {{}}; }}")
        asked = page.wait(lambda: page.run("return of_models.some((url) => url.endsWith('/digits/versions/1'))"), f"{what} asked about again")
        checks.check(f"{what} asked about again", asked)
    page.browser.refresh()
    page.wait(lambda: page.text("name") == "digits", "the page with its own clock")


def check_commands(page, checks):
    """The commands that make traffic where the usual ones would not work."""
    page.run(ALTERED)
    page.run("altered = (status) => { for (const one of status.models) for (const outcome in one.totals) one.totals[outcome] = 0; }")
    choose(page, "dry-run")
    curl = page.wait(lambda: "inputs" in page.text("quiet-curl") and page.text("quiet-curl"), "a request")
    server = curl.removeprefix("curl ").split("/v2/")[0]
    page.run("""
        const tensor = (name) => ({ name, datatype: "BYTES", shape: [-1] });
        const any_body = JSON.stringify({ inputs: [tensor("request")], outputs: [tensor("answer")] });
        const without_any = altered;
        told = (url) => url.includes("/dry-run/") && new Response(any_body);
        altered = (status) => { without_any(status); status.models.find((one) => one.name === "dry-run").version = "2"; };""")
    load = page.wait(lambda: "--model" not in page.text("quiet-load") and page.text("quiet-load"), "the load of a model that takes any body")
    checks.check("a load for a model that takes any body has a file of bodies", load.startswith(f"uncork loadtest {server}/models/dry-run --body FILE "), load)
    curl = page.text("quiet-curl")
    checks.check("and a request a body", curl.startswith(f"curl {server}/models/dry-run -d BODY "), curl)
    page.run("""
        const one_version = altered;
        altered = (status) => {
          one_version(status);
          const [digits, dry_run] = status.models.map((one) => ({ ...one, version: "0" }));
          status.models = [dry_run, ...status.models, digits];
        };""")
    page.wait(lambda: page.text("quiet-curl").startswith(f"curl {server}/models/dry-run/versions/2 "), "the version, where there are several")
    checks.check("of several versions the one that is shown is asked", "/models/dry-run/versions/2 " in page.text("quiet-load"), page.text("quiet-load"))
    choose(page, "digits")
    page.wait(lambda: "inputs" in page.text("quiet-curl"), "a request with tensors")
    curl = page.text("quiet-curl")
    checks.check("with tensors too", curl.startswith(f"curl {server}/v2/models/digits/versions/1/infer "), curl.split(" -d")[0])
    shown = [page.find(name).is_displayed() for name in ("quiet-commands", "drawing", "quiet-elsewhere")]
    checks.check("there are commands and a digit to draw", shown == [True, True, False], shown)
    page.run("const elsewhere = altered; altered = (status) => { elsewhere(status); status.server.for_operators = true; }")
    page.wait(lambda: page.find("quiet-elsewhere").is_displayed(), "an address for operators")
    shown = [page.find(name).is_displayed() for name in ("quiet-commands", "drawing", "quiet")]
    checks.check("at an address for operators there are none", shown == [False, False, True], shown)
    page.browser.refresh()
    page.wait(lambda: page.text("name") == "digits", "the page as it is")


def check_restart(page, checks, server):
    choose(page, "dry-run")
    server.stop()
    page.wait(lambda: page.find("lost").is_displayed(), "the notice that the server is gone")
    checks.check(
        "without a server the page says so, and from when its figures are",
        "keeps trying" in page.text("lost") and "What it shows is from" in page.text("lost"),
        page.text("lost"),
    )
    checks.check("and still shows them", marks(page, "batches") > 0 and page.text("state") == "no answer")
    plot = page.find("latency").find_element(By.CLASS_NAME, "plot")
    page.run("arguments[0].focus()", plot)
    plot.send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    page.wait(lambda: page.text("latency-words").startswith("2 s ago"), "a new drawing")
    state = page.text("state"), page.find("dot").get_attribute("class")
    checks.check("what is drawn anew does not look as if the server were there", state == ("no answer", ""), state)
    page.find("pause").click()
    page.wait(lambda: page.text("pause") == "Resume" and not page.all("svg .cursor"), "a paused page, drawn anew")
    paused = page.text("state"), page.text("lost")
    checks.check("a paused page does not say that it keeps trying", paused[0] == "no answer" and "is paused" in paused[1], paused)
    page.find("pause").click()
    page.wait(lambda: "keeps trying" in page.text("lost"), "it tries again")
    server.start()
    page.wait(lambda: not page.find("lost").is_displayed(), "the notice goes")
    page.wait(lambda: page.find("quiet").is_displayed(), "the new server has seen no request")
    checks.check(
        "the server that comes back is shown, with the same model",
        page.text("name") == "dry-run" and marks(page, "batches") == 0,
        page.text("server"),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the uncork to start")
    parser.add_argument("--pictures", metavar="FOLDER", type=pathlib.Path, help="save the page as PNG in all looks")
    arguments = parser.parse_args()
    if arguments.pictures:
        arguments.pictures.mkdir(parents=True, exist_ok=True)
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        server = Server(os.path.abspath(arguments.program), folder)
        try:
            with Page(server.url, 1280, 900) as page:
                check_before_traffic(page, checks)
                load = Load(server)
                try:
                    page.wait(lambda: min(load.answers.values()) >= ENOUGH_ANSWERS, "enough answers")
                    for model in ROWS:
                        choose(page, model)
                        check_plots(page, checks, model)
                    checks.check("there is a digit to draw only where the model reads digits", not page.find("drawing").is_displayed())
                    checks.check("the address names the model", page.browser.current_url.endswith("#dry-run%401"), page.browser.current_url)
                    check_looks(page, checks, arguments.pictures, "dry-run")
                    choose(page, "digits")
                    page.wait(lambda: page.find("drawing").is_displayed(), "the digit to draw")
                    check_looks(page, checks, arguments.pictures, "digits")
                finally:
                    load.stop()
                for model in ROWS:
                    refuse(server, model)
                    choose(page, model)
                    check_truth(page, checks, server, model)
                    check_tables(page, checks, model)
                check_cursor(page, checks)
                choose(page, "digits")
                page.wait(lambda: page.find("drawing").is_displayed(), "the digit to draw")
                check_keyboard(page, checks)
                check_numbers(page, checks)
                check_hour(page, checks)
                check_trouble(page, checks)
                check_rest(page, checks)
                check_new_version(page, checks)
                check_questions(page, checks)
                check_commands(page, checks)
                check_restart(page, checks, server)
                errors = page.errors()
                checks.check("the console holds no error", not errors, errors[:2])
        finally:
            server.stop()
    return checks.exit_code()


if __name__ == "__main__":
    sys.exit(main())
