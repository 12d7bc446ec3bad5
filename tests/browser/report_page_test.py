"""Opens reports in a real Chromium and uses them as a reader would.

    report_page_test.py --program build/.../penstock --sample-page build/.../write_sample_page
                        [--screenshots FOLDER]

What the page shows is compared with what the program computes in C++.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from chromium import Chromium

SHIFT = 8
options = None  # of the command line
folder = None  # for the pages of this run
browser = None


def run(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def write_report(name, *arguments):
    path = folder / name
    run(options.program, "report", *arguments, "--output", path)
    return path


def simulate(*arguments):
    return json.loads(run(options.program, "simulate", *arguments, "--format", "json"))


def nanoseconds(milliseconds):
    return round(milliseconds * 1e6)


def figure(name, card=0):
    """The exact value behind a figure of a schedule's card."""
    selector = f'.schedule:nth-of-type({card + 1}) .figures [data-figure="{name}"]'
    return json.loads(browser.evaluate(f"document.querySelector({selector!r}).dataset.value"))


def text_of(selector):
    return browser.evaluate(f"document.querySelector({selector!r}).textContent")


def view():
    return browser.evaluate("[penstockReport.view.start, penstockReport.view.end]")


def point_of(rank, action, card=0):
    """Where the middle of an action is on the screen."""
    return browser.evaluate(
        f"""(() => {{
          const {{ timeline, model }} = penstockReport.cards[{card}];
          timeline.canvas.scrollIntoView({{ block: 'center' }});
          const actions = model.program.ranks[{rank}];
          const step = actions.computeSteps.find((step) => actions.text(step) === {action!r});
          const times = model.timeline.times[{rank}];
          const box = timeline.canvas.getBoundingClientRect();
          return {{
            x: box.left + timeline.xAt((times.start[step] + times.end[step]) / 2),
            y: box.top + timeline.laneTop({rank}) + timeline.cellHeight / 2,
          }};
        }})()"""
    )


def focus_by_tab(condition, most=60):
    """Presses Tab until the focused element fits; returns the elements on the way."""
    seen = []
    for _ in range(most):
        browser.press("Tab")
        seen.append(browser.evaluate("document.activeElement.id || document.activeElement.className"))
        if browser.evaluate(f"Boolean({condition})"):
            return seen
    raise AssertionError(f"Tab does not lead to {condition}, only to {seen}")


class ReportPageTest(unittest.TestCase):
    def open(self, path):
        browser.open(path)

    def tearDown(self):
        self.assertEqual(browser.problems, [])
        outside = [url for url in browser.requests if not url.startswith(folder.as_uri())]
        self.assertEqual(outside, [])

    def assert_shows(self, expected, card=0):
        self.assertEqual(figure("makespan", card), nanoseconds(expected["makespan"]))
        self.assertEqual(figure("makespan-bubble", card), expected["makespan_bubble"])
        self.assertEqual(figure("span-bubble", card), expected["span_bubble"])
        self.assertEqual(figure("peak-activations", card), max(expected["peak_activations"]))
        busy = browser.evaluate(f"penstockReport.models[{card}].timeline.ranks.map((rank) => rank.busy)")
        self.assertEqual(busy, [nanoseconds(time) for time in expected["busy"]])

    def set_cost(self, key, milliseconds):
        """Types a cost, and waits until the page has simulated with it."""
        browser.evaluate(f"(() => {{ const field = document.getElementById('cost-{key}'); field.focus(); field.select(); }})()")
        browser.call("Input.insertText", text=str(milliseconds))
        browser.wait_for(f"penstockReport.shownCosts.{key} === {nanoseconds(milliseconds)}")

    def test_figures_are_those_of_the_program(self):
        arguments = ("zbv", "--ranks", 8, "--microbatches", 32, "--costs", "18.522,18.086,9.337", "--hop", 0.601)
        self.open(write_report("figures.html", *arguments))
        self.assertEqual(browser.evaluate("document.documentElement.dataset.agrees"), "true")
        self.assert_shows(simulate(*arguments))
        self.assertEqual(text_of("h1"), "ZBVZeroBubble: 8 ranks, 16 stages, 32 microbatches")
        self.assertIn("bubble (makespan)", text_of(".figures"))
        self.assertIn("bubble (span)", text_of(".figures"))
        self.assertEqual(len(browser.requests), 1)

    def test_ledger_adds_up(self):
        self.open(write_report("ledger.html", "dualpipev", "--ranks", 4, "--microbatches", 10, "--hop", 0.25))
        rows = browser.evaluate(
            "[...document.querySelectorAll('.ledger tbody tr')].map((row) =>"
            " [...row.querySelectorAll('[data-ns]')].map((cell) => Number(cell.dataset.ns)))"
        )
        self.assertEqual(len(rows), 4)
        for *causes, idle, busy in rows:
            self.assertEqual(sum(causes), idle)
            self.assertEqual(idle + busy, figure("makespan"))

    def test_every_schedule_is_simulated_as_in_cpp(self):
        page, expected_path = folder / "samples.html", folder / "samples.json"
        run(options.sample_page, page, expected_path)
        self.open(page)
        expected = json.loads(expected_path.read_text())
        self.assertEqual(browser.evaluate("document.documentElement.dataset.agrees"), "true", text_of("#disagreement"))
        self.assertEqual(browser.evaluate("penstockReport.models.length"), len(expected))
        for index, schedule in enumerate(expected):
            name = browser.evaluate(f"penstockReport.models[{index}].name")
            with self.subTest(name):
                self.compare_simulation(index, schedule)

    def compare_simulation(self, index, schedule):
        found = browser.evaluate(
            f"""(() => {{
              const model = penstockReport.models[{index}];
              return {{
                times: model.timeline.times.map((times) => [...times.start].map((start, step) =>
                  [start, times.end[step], times.causeRank[step], times.causeStep[step]])),
                memory: model.program.ranks.map((_, rank) => {{
                  const curve = model.memoryCurve(rank);
                  return [...curve.time].map((time, index) => [time, curve.bytes[index]]);
                }}),
                path: model.wholePath().map(({{ rank, step }}) => [rank, step]),
              }};
            }})()"""
        )
        self.assertEqual(found["times"], schedule["times"])
        self.assertEqual(found["memory"], schedule["memory"])
        self.assertEqual(found["path"], schedule["path"])

    def write_samples(self, name, wanted, most=100, as_measured=False):
        """A page with those entries of the sample page whose names fit; as if they had been measured, if asked for."""
        page, expected_path = folder / name, folder / "expected.json"
        run(options.sample_page, page, expected_path)
        head, data, tail = re.split('(?<=id="report-data">)(.*?)(?=</script>)', page.read_text(), maxsplit=1, flags=re.S)
        entries = json.loads(data)["entries"]
        if as_measured:
            for entry, expected in zip(entries, json.loads(expected_path.read_text())):
                entry["measured_times"] = [[time for step in rank for time in step[:2]] for rank in expected["times"]]
        entries = [entry for entry in entries if re.fullmatch(wanted, entry["name"])][:most]
        page.write_text(head + json.dumps({"entries": entries}).replace("<", "\\u003c") + tail)
        return page

    def test_measured_runs_stay_as_they_were_measured(self):
        self.open(self.write_samples("measured.html", "1F1B, .*(buffered|measured)", most=2))
        is_measured = browser.evaluate("penstockReport.models.map((model) => model.measuredTimes !== undefined)")
        measured, simulated = is_measured.index(True), is_measured.index(False)
        origin = lambda card: text_of(f".schedule:nth-of-type({card + 1}) .origin")
        before = [figure("makespan", card) for card in (measured, simulated)]
        self.assertTrue(origin(measured).endswith("; measured"))
        overhead = browser.evaluate(
            f"document.querySelectorAll('.schedule')[{measured}].querySelectorAll('.ledger tfoot [data-ns]')[4].dataset.ns")
        self.assertGreater(int(overhead), 0)
        self.set_cost("hop", 0.5)
        self.assertTrue(origin(measured).endswith("; measured"))
        self.assertEqual(figure("makespan", measured), before[0])
        self.assertTrue(origin(simulated).endswith("simulated with the costs above"))
        self.assertGreater(figure("makespan", simulated), before[1])
        browser.evaluate("document.getElementById('cost-reset').click()")
        browser.wait_for("penstockReport.shownCosts.hop === penstockReport.given.hop")
        self.assertNotIn("above", origin(simulated))
        self.assertEqual(figure("makespan", simulated), before[1])

    def test_measured_runs_alone_become_simulations(self):
        self.open(self.write_samples("alone.html", "1F1B, .*measured", most=1))
        before = figure("makespan")
        self.assertTrue(text_of(".schedule h2").endswith(", measured"))
        self.set_cost("hop", 0.5)
        self.assertTrue(text_of(".schedule h2").endswith(", simulated"))
        self.assertTrue(text_of(".origin").endswith("simulated with the costs above"))
        self.assertNotEqual(figure("makespan"), before)

    def test_measured_runs_are_not_ranked_against_predictions(self):
        best = "[...document.querySelectorAll('#comparison tbody tr:has(.best) th')].map((name) => name.textContent)"
        self.open(self.write_samples("pair.html", "1F1B, .*(buffered|measured)", most=2))
        self.assertEqual(browser.evaluate(best), [])
        self.open(self.write_samples("ranked.html", "1F1B, .*(buffered|measured)"))
        names = browser.evaluate(best)
        self.assertNotEqual(names, [])
        self.assertTrue(all(name.endswith(", measured") for name in names), names)
        digits = re.sub("[^0-9]", "", text_of('.schedule [data-figure="makespan"]'))
        self.assertLessEqual(len(digits.strip("0")), 4)
        self.assertIn("peak of activations and parameters", text_of(".figures"))

    def test_fits_wide_and_narrow_windows(self):
        page = self.write_samples("wide.html", "1F1B, .*(buffered|measured)", most=2)
        for width, expected in ((500, "static"), (1400, "sticky")):
            browser.open(page, width=width)
            self.assertEqual(browser.evaluate("getComputedStyle(document.querySelector('.controls')).position"), expected)
        table = "document.getElementById('comparison-table')"
        self.assertLessEqual(browser.evaluate(f"{table}.scrollWidth"), browser.evaluate(f"{table}.clientWidth"))
        browser.evaluate("document.getElementById('show-columns').click()")
        # A name that takes two lines moves both timelines.
        browser.evaluate("document.querySelector('.schedule h2').textContent = 'a name that needs room '.repeat(8)")
        for part in ("canvas.timeline", ".memory canvas", ".ledger table"):
            tops = browser.evaluate(f"[...document.querySelectorAll('.schedule {part}')].map((one) => one.getBoundingClientRect().top)")
            self.assertEqual(tops[0], tops[1], part)

    def test_legend_tells_of_what_can_be_seen(self):
        self.open(self.write_samples("legend.html", "1F1B, .*equal costs", most=1, as_measured=True))
        self.assertNotIn("parameters gathered", text_of("#legend"))  # they took no time
        self.open(self.write_samples("legend.html", "1F1B, .*buffered"))
        self.assertIn("parameters gathered", text_of("#legend"))

    def test_hovering_explains_an_action(self):
        self.open(write_report("hover.html", "gpipe", "--ranks", 4, "--microbatches", 4, "--hop", 0.5))
        browser.mouse("mouseMoved", **point_of(2, "2F0"))
        tooltip = browser.evaluate("[...document.getElementById('tooltip').children].map((line) => line.textContent)")
        self.assertEqual(
            tooltip,
            [
                "2F0",
                "forward of microbatch 0 on stage 2; rank 2",
                "start 3 ms, end 4 ms, takes 1 ms",
                "waited 3 ms for 1F0 on rank 1 (warm-up 2.5 ms, transfer 0.5 ms)",
                "on the critical path",
            ],
        )
        self.assertFalse(browser.evaluate("document.getElementById('tooltip').hidden"))
        gap = point_of(2, "2F0")
        distance = browser.evaluate("penstockReport.cards[0].timeline.laneWidth / penstockReport.view.length * 1.5e6")
        browser.mouse("mouseMoved", x=gap["x"] - distance, y=gap["y"])
        self.assertIn("idle 3 ms before 2F0", text_of("#tooltip"))
        browser.mouse("mouseMoved", x=5, y=5)
        self.assertTrue(browser.evaluate("document.getElementById('tooltip').hidden"))

    def test_wheel_zooms_and_drag_moves(self):
        self.open(write_report("zoom.html", "1f1b", "--ranks", 4, "--microbatches", 16))
        whole = view()
        point = point_of(1, "1F8")
        time_there = browser.evaluate("penstockReport.cards[0].timeline.timeAt(%f)" % (
            point["x"] - browser.evaluate("penstockReport.cards[0].timeline.canvas.getBoundingClientRect().left")))
        for _ in range(4):
            browser.mouse("mouseWheel", **point, deltaX=0, deltaY=-100)
        zoomed = view()
        self.assertLess(zoomed[1] - zoomed[0], 0.5 * (whole[1] - whole[0]))
        self.assertTrue(zoomed[0] < time_there < zoomed[1])
        browser.mouse("mousePressed", **point, button="left", clickCount=1)
        browser.mouse("mouseMoved", x=point["x"] - 200, y=point["y"], button="left")
        browser.mouse("mouseReleased", x=point["x"] - 200, y=point["y"], button="left", clickCount=1)
        moved = view()
        self.assertGreater(moved[0], zoomed[0])
        self.assertAlmostEqual(moved[1] - moved[0], zoomed[1] - zoomed[0], delta=1)
        browser.mouse("mouseWheel", **point, deltaX=0, deltaY=-100, modifiers=SHIFT)
        self.assertLess(view()[0], moved[0])
        browser.evaluate("document.getElementById('zoom-reset').click()")
        self.assertEqual(view(), whole)
        browser.evaluate("document.getElementById('zoom-in').click()")
        self.assertLess(view()[1] - view()[0], whole[1])

    def test_changed_costs_are_simulated_as_in_cpp(self):
        shape = ("zbv", "--ranks", 4, "--microbatches", 12)
        self.open(write_report("costs.html", *shape))
        self.set_cost("forward", 2.5)
        self.assert_shows(simulate(*shape, "--costs", "2.5,1,1"))
        self.set_cost("input", 3)
        self.set_cost("weight", 0.75)
        self.set_cost("hop", 0.3)
        self.assert_shows(simulate(*shape, "--costs", "2.5,3,0.75", "--hop", 0.3))
        self.assertEqual(text_of("#cost-ratio"), "F : I : W = 3.333 : 4 : 1")
        self.assertIn("bubble", text_of("#announcement"))
        browser.evaluate("document.getElementById('cost-reset').click()")
        browser.wait_for("penstockReport.shownCosts.forward === 1e6")
        self.assert_shows(simulate(*shape))

    def test_sliders_move_by_keyboard(self):
        shape = ("1f1b", "--ranks", 4, "--microbatches", 8)
        self.open(write_report("slider.html", *shape))
        focus_by_tab("document.activeElement.id === 'cost-hop-slider'")
        for _ in range(5):
            browser.press("ArrowRight")
        browser.wait_for("penstockReport.shownCosts.hop > 0 && penstockReport.shownCosts.hop === penstockReport.costs.values.hop")
        hop = browser.evaluate("penstockReport.shownCosts.hop") / 1e6
        self.assert_shows(simulate(*shape, "--hop", hop))

    def test_compares_schedules_side_by_side(self):
        shape = ("--ranks", 4, "--microbatches", 8)
        costs = ("--per-rank", "--hop", 0.1)
        self.open(write_report("compare.html", "1f1b", "zbv", *shape, *costs))
        for card, name in enumerate(("1f1b", "zbv")):
            self.assert_shows(simulate(name, *shape, *costs), card)
        rows = browser.evaluate(
            "[...document.querySelectorAll('#comparison tbody tr')].map((row) => [row.querySelector('th').textContent,"
            " Number(row.querySelector('[data-figure=\"makespan\"]').dataset.value)])"
        )
        self.assertEqual(rows, [["1F1B", figure("makespan", 0)], ["ZBVZeroBubble", figure("makespan", 1)]])
        browser.evaluate("document.getElementById('show-columns').click()")
        tops = browser.evaluate("[...document.querySelectorAll('.schedule')].map((card) => card.getBoundingClientRect().top)")
        self.assertEqual(tops[0], tops[1])
        self.set_cost("forward", 2)
        self.assert_shows(simulate("1f1b", *shape, "--costs", "2,1,1", *costs), 0)
        self.assert_shows(simulate("zbv", *shape, "--costs", "2,1,1", *costs), 1)

    def test_file_names_cannot_inject_markup(self):
        path = folder / "<img src=x onerror=alert(1)>.csv"
        path.write_text(run(options.program, "generate", "gpipe", "--ranks", 2, "--microbatches", 2))
        self.open(write_report("names.html", path))
        self.assertEqual(browser.evaluate("document.querySelectorAll('img').length"), 0)
        self.assertIn("<img src=x", text_of("h1"))
        self.assertIn("<img src=x", text_of(".schedule h2"))

    def test_everything_is_in_reach_of_the_keyboard(self):
        self.open(write_report("keyboard.html", "1f1b", "zbv", "--ranks", 4, "--microbatches", 8, "--hop", 0.5))
        seen = focus_by_tab("document.activeElement === penstockReport.cards[1].timeline.canvas")
        controls = ["cost-forward-slider", "cost-forward", "cost-hop", "zoom-in", "zoom-out", "pan-left", "pan-right",
                    "zoom-reset", "show-path", "show-transfers", "show-memory", "show-ledger", "show-columns"]
        for control in controls:
            self.assertIn(control, seen)
        self.assertEqual(seen.count("timeline"), 2)

    def test_keys_move_between_actions(self):
        self.open(write_report("keys.html", "1f1b", "--ranks", 4, "--microbatches", 8, "--hop", 0.5))
        focus_by_tab("document.activeElement === penstockReport.cards[0].timeline.canvas")
        announcement = lambda: text_of("#announcement")
        self.assertTrue(announcement().startswith("0F0; forward of microbatch 0 on stage 0; rank 0; start 0 ms"))
        browser.press("ArrowRight")
        self.assertTrue(announcement().startswith("0F1;"))
        browser.press("ArrowDown")
        self.assertTrue(announcement().startswith("1F0;"))
        self.assertIn("waited 1.5 ms for 0F0 on rank 0", announcement())
        self.assertFalse(browser.evaluate("document.getElementById('tooltip').hidden"))
        browser.press("Enter")
        self.assertTrue(announcement().startswith("0F0;"))
        browser.press("End")
        self.assertTrue(announcement().startswith("0B7;"))
        browser.press("+")
        browser.press("+")
        zoomed = view()
        self.assertAlmostEqual((zoomed[1] - zoomed[0]) * 2.25, figure("makespan"), delta=10)
        browser.press("Home")  # brings the first action into sight again
        self.assertEqual(view()[0], 0)
        browser.press("-")
        browser.press("0")
        self.assertEqual(view(), [0, figure("makespan")])
        browser.press("Escape")
        self.assertTrue(browser.evaluate("document.getElementById('tooltip').hidden"))

    def test_critical_path_is_highlighted(self):
        self.open(write_report("path.html", "1f1b", "--ranks", 4, "--microbatches", 8))
        pixels = "penstockReport.cards[0].timeline.canvas.toDataURL()"
        before = browser.evaluate(pixels)
        browser.evaluate("document.getElementById('show-path').focus()")
        browser.press(" ")
        browser.settle()
        self.assertNotEqual(browser.evaluate(pixels), before)
        cells = browser.evaluate("penstockReport.models[0].pathCells.length")
        self.assertGreater(cells, 8)
        browser.press(" ")
        browser.settle()
        self.assertEqual(browser.evaluate(pixels), before)

    def test_large_schedules_stay_usable(self):
        shape = ("1f1b", "--ranks", 64, "--microbatches", 512)
        page = write_report("large.html", *shape)
        begin = time.monotonic()
        self.open(page)
        self.assertLess(time.monotonic() - begin, 30)
        self.assert_shows(simulate(*shape))
        draw = browser.evaluate(
            "(() => { const begin = performance.now(); penstockReport.cards[0].timeline.drawAll();"
            " return performance.now() - begin; })()")
        self.assertLess(draw, 2000)
        begin = time.monotonic()
        self.set_cost("forward", 1.5)
        self.assertLess(time.monotonic() - begin, 15)
        self.assert_shows(simulate(*shape, "--costs", "1.5,1,1"))

    def test_screenshots(self):
        """Pictures for people; the page must draw them without a problem."""
        if options.screenshots is None:
            self.skipTest("no --screenshots")
        options.screenshots.mkdir(parents=True, exist_ok=True)
        shape = ("--ranks", 8, "--microbatches", 32)
        self.open(write_report("one.html", "1f1b", *shape))
        browser.screenshot(options.screenshots / "report.png")
        self.open(write_report("two.html", "1f1b", "zbv", *shape, "--per-rank", "--hop", 0.05))
        browser.evaluate("document.getElementById('show-columns').click()")
        browser.settle()
        browser.screenshot(options.screenshots / "comparison.png")


def main():
    global options, folder, browser
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, type=pathlib.Path)
    parser.add_argument("--sample-page", required=True, type=pathlib.Path)
    parser.add_argument("--screenshots", type=pathlib.Path)
    parser.add_argument("tests", nargs="*")
    options = parser.parse_args()
    if shutil.which("chromium") is None:
        sys.exit("report_page_test: no chromium; install the Debian package, or leave this out: ctest -LE browser")
    with tempfile.TemporaryDirectory(prefix="penstock-reports-") as name, Chromium() as chromium:
        folder, browser = pathlib.Path(name), chromium
        unittest.main(argv=[sys.argv[0], *options.tests], verbosity=2)


if __name__ == "__main__":
    main()
