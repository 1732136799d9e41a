/** The one ticking clock of the page, by the server's time. It stands still while the page is hidden. */
import { serverNow } from "../api/client";

class Clock {
  now = $state(serverNow());

  /** Ticks each second; gives the function that stops it. */
  start(): () => void {
    const timer = setInterval(() => {
      if (!document.hidden) this.now = serverNow();
    }, 1000);
    return () => clearInterval(timer);
  }
}

export const clock = new Clock();
