// Asks for /status once a second, or of an hour every ten: not while the page is hidden or paused, and more slowly while nobody answers.

const EVERY_MS = 1000;
const EVERY_MS_OF_HOUR = 10_000;
const TIMEOUT_MS = 5000;      // for one answer; far longer than the server ever takes for it
const LONGEST_PAUSE_MS = 4000; // between two tries while nobody answers: a server that comes back is seen soon

export class Live {
  /** `seen(status)` gets each answer, `lost(message)` each failure. */
  constructor(seen, lost) {
    Object.assign(this, { seen, lost, hour: false, paused: false, failures: 0, timer: 0, asking: false });
    document.addEventListener("visibilitychange", () => this.ask());
  }

  pause(paused) {
    this.paused = paused;
    this.ask();
  }

  /** Of the last hour, or of two minutes. */
  show(hour) {
    this.hour = hour;
    this.ask();
  }

  /** Asks now, and then again and again. */
  async ask() {
    clearTimeout(this.timer);
    if (this.asking || this.paused || document.hidden) return;
    this.asking = true;
    const started = performance.now(), { hour } = this;
    let status, problem;
    try {
      const response = await fetch(hour ? "status?history=hour" : "status", { signal: AbortSignal.timeout(TIMEOUT_MS), cache: "no-store" });
      if (!response.ok) throw new Error(`it answered ${response.status} to GET /status`);
      status = await response.json();
      this.failures = 0;
    } catch (error) {
      this.failures += 1;
      problem = error;
    }
    this.asking = false;
    // What came is of another time than what is wanted by now: again, at once.
    const every_ms = hour !== this.hour ? 0 : hour && status ? EVERY_MS_OF_HOUR : EVERY_MS;
    const pause_ms = status ? every_ms : Math.min(LONGEST_PAUSE_MS, EVERY_MS * 2 ** Math.max(0, this.failures - 1));
    this.timer = setTimeout(() => this.ask(), Math.max(0, pause_ms - (performance.now() - started)));
    // Last: a mistake in what is drawn must not end the asking.
    if (status && hour === this.hour) this.seen(status);
    else if (problem) this.lost(problem);
  }
}
