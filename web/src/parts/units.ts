/** Amounts as people write them: 4.0 GiB, 2 h; and read back as they were shown. */

import type { Texts } from "../texts/en";

const BYTES = [
  ["TiB", 2 ** 40],
  ["GiB", 2 ** 30],
  ["MiB", 2 ** 20],
  ["KiB", 2 ** 10],
] as const;
const TIMES = [
  ["d", 86_400],
  ["h", 3_600],
  ["min", 60],
] as const;

export type Unit = "bytes" | "seconds" | "number" | "text";

/** Fields of evidence, of results and of needs that are no plain numbers. */
const UNITS: Record<string, Unit> = {
  peak_memory: "bytes", memory_limit: "bytes", memory: "bytes", disk: "bytes", disk_left: "bytes", free: "bytes", input_bytes: "bytes", size: "bytes", buffer: "bytes",
  wall: "seconds", wall_time: "seconds", time_limit: "seconds", time_left: "seconds", cpu: "seconds", wait: "seconds", seconds: "seconds", timeout: "seconds", age: "seconds",
};

export const unitOf = (field: string): Unit => UNITS[field.split(".").at(-1) ?? ""] ?? "number";

const rounded = (value: number, digits: number) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits, useGrouping: false });

/** Of how many units a number is: the largest of which it has at least one. */
export function bytes(value: number): string {
  for (const [unit, size] of BYTES) {
    // What would be rounded up to the next unit is told in it.
    if (value >= size * 0.9995) return `${rounded(value / size, value < 10 * size ? 1 : 0)} ${unit}`;
  }
  return `${Math.round(value)} B`;
}

/** In the largest unit that loses nothing, for a field that is written over: 64 GiB, 90 min. */
export function exact(unit: Unit, value: unknown): string {
  if (typeof value !== "number") return String(value ?? "");
  const units = unit === "bytes" ? BYTES : unit === "seconds" ? TIMES : [];
  for (const [name, size] of units) if (value !== 0 && value % size === 0) return `${value / size} ${name}`;
  return unit === "bytes" ? `${value} B` : unit === "seconds" ? `${value} s` : String(value);
}

/** What somebody wrote; null: it is no such amount. A number of bytes or of seconds has a unit, as it could mean anything without. */
export function read(unit: Unit, text: string): number | string | null {
  if (unit === "text") return text;
  const match = /^\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*$/.exec(text);
  if (match === null) return null;
  const value = Number(match[1]);
  const name = (match[2] ?? "").toLowerCase();
  if (unit === "number") return name === "" ? value : null;
  const units: readonly (readonly [string, number])[] = unit === "bytes" ? [...BYTES, ["B", 1]] : [...TIMES, ["s", 1]];
  const known = units.find(([other]) => other.toLowerCase() === name || (unit === "bytes" && [other.replace("iB", "B"), other.replace("iB", "")].some((short) => short.toLowerCase() === name)));
  return known === undefined ? null : Math.round(value * known[1]);
}

/** An amount for people. */
export function amount(texts: Texts, unit: Unit, value: unknown): string {
  if (typeof value !== "number") return typeof value === "object" && value !== null ? JSON.stringify(value) : String(value ?? "");
  return unit === "bytes" ? bytes(value) : unit === "seconds" ? texts.overview.seconds(value) : String(value);
}
