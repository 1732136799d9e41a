/** The one ticking clock of the page. It stands still while the page is hidden. */
import { serverNow } from "../api/client";

class Clock {
  /** Unix time in ms by the server's clock, for what the server dated. */
  now = $state(serverNow());
  /** `performance.now()`, for what this page measured itself. */
  elapsed = $state(performance.now());

  /** Ticks each second; gives the function that stops it. */
  start(): () => void {
    const timer = setInterval(() => {
      if (document.hidden) return;
      this.now = serverNow();
      this.elapsed = performance.now();
    }, 1000);
    return () => clearInterval(timer);
  }
}

export const clock = new Clock();
