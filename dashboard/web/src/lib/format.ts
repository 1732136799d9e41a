/** Numbers as people read them. */

const BYTE_UNITS = ["B", "kB", "MB", "GB", "TB"];

/** Decimal units, as disks and models are sold: 1500000000 is "1.5 GB". */
export function formatBytes(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 999.5 && unit < BYTE_UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const digits = unit === 0 || value >= 99.5 ? 0 : 1;
  return `${value.toFixed(digits)} ${BYTE_UNITS[unit] ?? ""}`;
}

/** A span of ms in its largest whole unit: "4 s", "12 min", "3 h", "2 d". */
export function formatAge(milliseconds: number): string {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** A latency: "85 ms" below a second, "1.24 s" above. */
export function formatLatency(milliseconds: number): string {
  return milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : `${(milliseconds / 1000).toFixed(2)} s`;
}

/** Tokens per second with as many digits as matter. */
export function formatRate(perSecond: number): string {
  return `${perSecond >= 100 ? Math.round(perSecond) : perSecond.toFixed(1)} tokens/s`;
}

/** Enough of a random id to tell it from its neighbours; the full one belongs in a title. */
export function shortId(id: string): string {
  return id.slice(0, 8);
}

export function countOf(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}
