/** Light, dark, or what the system says. Only a choice by hand is remembered. */

export type Theme = "system" | "light" | "dark";

const KEY = "exo.theme";
const ORDER: Theme[] = ["system", "light", "dark"];

function readStored(): Theme {
  try {
    const stored = localStorage.getItem(KEY);
    return stored === "light" || stored === "dark" ? stored : "system";
  } catch {
    // Storage is blocked: the choice then lasts as long as the page.
    return "system";
  }
}

class ThemeChoice {
  current = $state<Theme>(readStored());

  constructor() {
    this.apply();
  }

  next(): Theme {
    return ORDER[(ORDER.indexOf(this.current) + 1) % ORDER.length] ?? "system";
  }

  toggle(): void {
    this.current = this.next();
    this.apply();
    try {
      if (this.current === "system") localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, this.current);
    } catch {
      // See readStored.
    }
  }

  private apply(): void {
    if (this.current === "system") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = this.current;
  }
}

export const theme = new ThemeChoice();
