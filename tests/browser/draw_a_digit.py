"""Draws digits with the mouse on the page of a running server, in headless Chromium, and checks what the page shows.

    apt install chromium chromium-driver
    pip install -r tests/browser/requirements.txt
    python tests/browser/draw_a_digit.py http://127.0.0.1:8080 [--screenshot FILE]

The server must serve the digits model. Exit code 0 when every check passed, 1 otherwise.
"""

import argparse
import math
import sys

from page import Checks, Page
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.actions.pointer_input import PointerInput
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

STEP = 0.04  # between two mouse positions, as a share of the canvas's side


def arc(x, y, width, height, start, end):
    """Points on an ellipse around (x, y); angles in degrees, 0 to the right, 90 down."""
    steps = max(4, abs(end - start) // 15)
    angles = [math.radians(start + (end - start) * i / steps) for i in range(steps + 1)]
    return [(x + width / 2 * math.cos(a), y + height / 2 * math.sin(a)) for a in angles]


# (name, the digit, its strokes: lists of points with both coordinates from 0 to 1)
DRAWINGS = [
    ("0, round", 0, [arc(0.5, 0.5, 0.55, 0.7, -90, 270)]),
    ("0, narrow", 0, [arc(0.5, 0.5, 0.36, 0.72, -90, 270)]),
    ("1, one line", 1, [[(0.5, 0.15), (0.5, 0.85)]]),
    ("1, slanted", 1, [[(0.58, 0.15), (0.45, 0.85)]]),
    ("1, with a flag", 1, [[(0.36, 0.33), (0.53, 0.15), (0.53, 0.85)]]),
    ("1, with a foot", 1, [[(0.35, 0.3), (0.5, 0.15), (0.5, 0.85)], [(0.35, 0.85), (0.65, 0.85)]]),
    ("2, round", 2, [arc(0.48, 0.33, 0.42, 0.36, 190, 390) + [(0.28, 0.83), (0.74, 0.83)]]),
    ("2, angular", 2, [[(0.3, 0.3), (0.4, 0.17), (0.58, 0.18), (0.66, 0.32), (0.55, 0.52), (0.28, 0.82), (0.72, 0.8)]]),
    ("3, round", 3, [arc(0.48, 0.33, 0.38, 0.34, 200, 450) + arc(0.48, 0.67, 0.44, 0.36, 270, 515)]),
    ("3, small", 3, [arc(0.3, 0.3, 0.15, 0.13, 200, 450) + arc(0.3, 0.43, 0.17, 0.14, 270, 515)]),
    ("4, open", 4, [[(0.35, 0.15), (0.28, 0.52), (0.7, 0.52)], [(0.6, 0.2), (0.58, 0.86)]]),
    ("4, closed", 4, [[(0.56, 0.85), (0.58, 0.15), (0.26, 0.6), (0.74, 0.6)]]),
    ("5, two strokes", 5, [[(0.36, 0.17), (0.34, 0.46)] + arc(0.46, 0.64, 0.44, 0.4, 235, 500), [(0.36, 0.17), (0.68, 0.16)]]),
    ("5, one stroke", 5, [[(0.68, 0.15), (0.36, 0.15), (0.33, 0.45)] + arc(0.47, 0.63, 0.42, 0.42, 240, 490)]),
    ("6, round", 6, [[(0.62, 0.14), (0.46, 0.26), (0.36, 0.45)] + arc(0.49, 0.65, 0.34, 0.36, 180, -180)]),
    ("7, plain", 7, [[(0.28, 0.16), (0.7, 0.16), (0.45, 0.86)]]),
    ("7, crossed", 7, [[(0.28, 0.16), (0.7, 0.16), (0.45, 0.86)], [(0.36, 0.5), (0.68, 0.5)]]),
    ("7, curved", 7, [[(0.25, 0.25), (0.3, 0.18), (0.72, 0.17), (0.55, 0.45), (0.48, 0.85)]]),
    ("8, two rings", 8, [arc(0.5, 0.32, 0.36, 0.34, 90, 450), arc(0.5, 0.67, 0.42, 0.36, -90, 270)]),
    ("9, straight leg", 9, [arc(0.48, 0.34, 0.36, 0.38, 0, -360) + [(0.66, 0.34), (0.62, 0.86)]]),
    ("9, curved leg", 9, [arc(0.48, 0.34, 0.38, 0.38, 0, -360) + [(0.67, 0.34), (0.68, 0.6), (0.6, 0.8), (0.4, 0.86)]]),
]


class Drawing(Page):
    """The page of a server that serves the digits model."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.wait(lambda: self.find("drawing").is_displayed(), "the drawing area is shown")

    def draw(self, strokes):
        """Draws with mouse events, in small steps, and waits for the answer to the finished drawing."""
        self.clear()
        canvas = self.find("canvas")
        self.run("arguments[0].scrollIntoView({block: 'nearest'})", canvas)
        box = self.run("const b = arguments[0].getBoundingClientRect(); return [b.x, b.y, b.width, b.height]", canvas)
        mouse = PointerInput("mouse", "mouse")
        actions = ActionBuilder(self.browser, mouse=mouse, duration=2)

        def move(point):
            x, y = box[0] + point[0] * box[2], box[1] + point[1] * box[3]
            actions.pointer_action.move_to_location(round(x), round(y))

        for stroke in strokes:
            move(stroke[0])
            actions.pointer_action.pointer_down()
            for start, end in zip(stroke, stroke[1:]):
                steps = max(1, math.ceil(math.dist(start, end) / STEP))
                for i in range(1, steps + 1):
                    move([start[axis] + (end[axis] - start[axis]) * i / steps for axis in (0, 1)])
            actions.pointer_action.pointer_up()
        actions.perform()
        # Two frames: the last event has been handled, and what it asked for is under way or answered.
        self.browser.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))")
        self.wait(lambda: self.find("answer").get_attribute("aria-busy") == "false", "the answer")

    def clear(self):
        self.find("clear").click()
        self.wait(lambda: self.text("digit") == "?" and self.find("hint").is_displayed(), "an empty drawing")

    def percents(self):
        """The ten shown percentages as numbers; 0 where there is no answer."""
        shown = self.browser.find_elements(By.CSS_SELECTOR, "#bars li span:last-child")
        return [float(element.text.removesuffix(" %").replace("–", "0")) for element in shown]

    def bar_widths(self):
        """The ten bars' widths, in percent of their tracks."""
        return self.run("return [...document.querySelectorAll('#bars .fill')].map((fill) => parseFloat(fill.style.width))")


def check_digits(page, checks):
    for name, digit, strokes in DRAWINGS:
        page.draw(strokes)
        answer, sure = page.text("digit"), max(page.percents())
        checks.check(f"draws {name}", answer == str(digit), f"answer {answer}, {sure} % {page.text('notice')}".rstrip())


def check_answer(page, checks):
    page.draw(DRAWINGS[0][2])
    percents, widths = page.percents(), page.bar_widths()
    checks.check("the ten percentages sum to 100", len(percents) == 10 and abs(sum(percents) - 100) < 1, sum(percents))
    checks.check("the bars are as wide as their percentages", all(abs(a - b) < 0.1 for a, b in zip(percents, widths, strict=True)), widths)
    for field, unit in [("round-trip", " ms"), ("queue", " ms"), ("batch", " ms"), ("rows", "")]:
        shown = page.text(field)
        number = shown.removesuffix(unit).replace(".", "", 1)
        checks.check(f"{field} shows a number", shown.endswith(unit) and number.isdigit(), shown)
    checks.check("no error is shown", not page.find("notice").is_displayed(), page.text("notice"))
    checks.check("it shows how to ask with curl", "/v2/models/digits/infer" in page.find("curl").get_attribute("textContent"))


def check_keyboard(page, checks):
    page.draw(DRAWINGS[0][2])
    clear = page.find("clear")
    page.run("arguments[0].focus()", clear)
    ActionChains(page.browser).send_keys(Keys.ENTER).perform()
    page.wait(lambda: page.text("digit") == "?", "an empty drawing")
    checks.check("the Enter key on the button clears", page.find("hint").is_displayed())
    page.draw(DRAWINGS[0][2])
    ActionChains(page.browser).send_keys(Keys.ESCAPE).perform()
    page.wait(lambda: page.text("digit") == "?", "an empty drawing")
    checks.check("the Escape key clears", page.find("hint").is_displayed())


def check_console(page, checks):
    severe = page.errors()
    checks.check("the console holds no error", not severe, f"{len(severe)}: {severe[:1]}" if severe else "")


def check_phone(page, checks):
    page.draw(DRAWINGS[0][2])
    checks.check("375 px wide: the drawn 0 is answered", page.text("digit") == "0", page.text("digit"))
    scroll, view = page.widths()
    checks.check("375 px wide: nothing scrolls sideways", view <= 375 and scroll <= view, f"{scroll} in {view} px")
    side = page.find("canvas").size
    checks.check(
        "375 px wide: the canvas is square and 240 px or more", side["width"] >= 240 and abs(side["width"] - side["height"]) <= 2, side
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", help="base URL of a running server")
    parser.add_argument("--screenshot", metavar="FILE", help="save the page with the last answer as PNG")
    parser.add_argument("--dark", action="store_true", help="in the dark colours")
    parser.add_argument("--phone", action="store_true", help="take the screenshot at phone width")
    arguments = parser.parse_args()

    def screenshot(page):
        if arguments.screenshot:
            page.draw(next(strokes for name, _, strokes in DRAWINGS if name == "3, round"))
            page.run("scrollTo(0, 0)")
            page.browser.save_screenshot(arguments.screenshot)

    checks = Checks()
    with Drawing(arguments.url, 1280, 1010, arguments.dark) as page:
        check_digits(page, checks)
        check_answer(page, checks)
        check_keyboard(page, checks)
        check_console(page, checks)
        if not arguments.phone:
            screenshot(page)
    with Drawing(arguments.url, 375, 812, arguments.dark) as page:
        check_phone(page, checks)
        check_console(page, checks)
        if arguments.phone:
            screenshot(page)
    return checks.exit_code()


if __name__ == "__main__":
    sys.exit(main())
