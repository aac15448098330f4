"""The page of a node in a real Chromium: what is wrong, a sink and an alert are seen, in the words of `status`, and what
events say is text, never markup. HTTP is the node's address, and PROJECT the project, of which `run` has made:

    a stream `visits`, a view `visits_by_page`, a view `visit_numbers` that fails on the page "<b id=injected>", a sink
    `visited` and an alert `visited_twice`
"""

import html.parser
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request

ADDRESS = f"http://{os.environ['HTTP']}"
PATIENCE_SECONDS = 120
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


def status_of_node():
    with urllib.request.urlopen(f"{ADDRESS}/v1/status") as answer:
        return json.load(answer)


def problems_of_command():
    status = subprocess.run([os.environ["BASESTREAM"], "status", "--json"], cwd=os.environ["PROJECT"], stdout=subprocess.PIPE, check=True)
    return [problem for problem in json.loads(status.stdout)["problems"] if problem["fault"] == "view_errors"]


def wait_for_node():
    """Until the events are committed and the alert has been evaluated."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        status = status_of_node()
        is_open = any(alert["alert"] == "visited_twice" and alert["open"] == 1 for alert in status["alerts"])
        if is_open and any(problem["fault"] == "view_errors" for problem in status["problems"]):
            return
        time.sleep(0.2)
    raise SystemExit(f"timed out: the node does not report the problem and the alert: {status}")


def dom():
    """The page as the browser has it, once it has asked the node."""
    folder = tempfile.mkdtemp()
    try:
        command = [os.environ.get("CHROMIUM", "chromium"), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}",
                   "--virtual-time-budget=10000", "--dump-dom", f"{ADDRESS}/"]
        shown = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, timeout=PATIENCE_SECONDS)
        return Page(shown.stdout.decode())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Page(html.parser.HTMLParser):
    """The texts below each element that has an id, and the tags and ids that there are."""

    def __init__(self, text):
        super().__init__()
        self.open, self.texts, self.ids = [], {}, set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        name = dict(attributes).get("id")
        self.ids.add(name)
        if tag not in VOID:
            self.open.append((tag, name))

    def handle_endtag(self, tag):
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        for _, name in self.open:
            if name and data.strip():
                self.texts.setdefault(name, []).append(data)

    def expect(self, element, *texts):
        found = self.texts.get(element, [])
        missing = [text for text in texts if text not in found]
        assert not missing, f"#{element} does not show {missing}: {found}"


def main():
    wait_for_node()
    page = dom()
    problems = problems_of_command()
    assert problems, "the command names no view that fails"
    for problem in problems:
        assert "<b id=injected>" in problem["cause"], problem
        page.expect("problems", "warning", problem["what"], problem["cause"], problem["effect"], problem["next_step"])
    page.expect("sinks", "visited", "live")
    page.expect("alerts", "visited_twice", "1", '{"page":"<b id=injected>"}')
    page.expect("views", "visit_numbers", "visits_by_page")
    page.expect("streams", "visits")
    assert "injected" not in page.ids, "what an event says became markup"
    assert "warning" in "".join(page.texts["state"]), page.texts["state"]


main()
