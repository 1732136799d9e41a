/**
 * The API key that a node asks for when its API is open to the network and the page is not on its
 * machine. Asked for once, kept in this browser.
 */

const KEY = "exo.key";
const QUESTION =
  "This node asks for an API key. On a machine of the cluster, `exo keys add NAME --scope admin` makes one.";

/** What is used when storage is blocked: it then lasts as long as the page. */
let current = readStored();
let declined = false;

function readStored(): string {
  try {
    return localStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

export function storedKey(): string {
  return current;
}

/** The headers that go with every request. */
export function keyHeaders(): Record<string, string> {
  return current ? { authorization: `Bearer ${current}` } : {};
}

/** Asks the person for a key after a refusal of `used`. Gives whether it is worth trying again. */
export function askForKey(used: string): boolean {
  // Several requests are refused at once: one question is enough.
  if (used !== current) return true;
  if (declined) return false;
  const given = window.prompt(QUESTION)?.trim() ?? "";
  declined = !given;
  if (given) remember(given);
  return Boolean(given);
}

function remember(key: string): void {
  current = key;
  try {
    localStorage.setItem(KEY, key);
  } catch {
    // See `current`.
  }
}
