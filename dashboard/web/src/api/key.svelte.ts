/**
 * The API key that a node asks for when its API is open to the network and the page is not on its
 * machine. `client.ts` sends it and notes what the node said to it; `KeyForm.svelte` asks for it. Kept
 * in this browser.
 */

const KEY = "exo.key";
/** What a header can carry; a key holds nothing else. */
const SENDABLE = /^[\x21-\x7e]+$/;

class ApiKey {
  /** Why the node shows the page nothing without another key; empty while it does. */
  refusal = $state("");
  /** Whether the person wants to give another key. */
  changing = $state(false);
  /** What is used when storage is blocked: it then lasts as long as the page. */
  current = $state(readStored());

  /** The headers that go with every request. */
  get headers(): Record<string, string> {
    return this.current ? { authorization: `Bearer ${this.current}` } : {};
  }

  /** Uses and keeps a key from now on; gives false for what cannot be one. */
  give(text: string): boolean {
    const given = text.trim();
    if (!SENDABLE.test(given)) {
      this.refusal = "That is no API key: one has no spaces and no letters beyond ASCII.";
      return false;
    }
    this.current = given;
    this.changing = false;
    try {
      localStorage.setItem(KEY, given);
    } catch {
      // See `current`.
    }
    return true;
  }

  /** Notes that a request with `used` was refused; news about an earlier key is none. */
  noteRefused(used: string, words: string): void {
    if (used === this.current) this.refusal = used ? words : "This node asks for an API key.";
  }

  noteAdmitted(used: string): void {
    if (used === this.current) this.refusal = "";
  }
}

function readStored(): string {
  try {
    return localStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

export const apiKey = new ApiKey();
