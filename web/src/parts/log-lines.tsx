import { visible } from "./plain";

interface Given {
  lines: string[];
  /** Those that decided what the failure is. */
  deciding?: readonly string[];
  label: string;
}

/** A log, with the lines marked that decided. */
export function LogLines({ lines, deciding = [], label }: Given) {
  const marked = new Set(deciding.map((one) => one.trim()));
  return (
    <div className="plain log" tabIndex={0} role="region" aria-label={label}>
      {lines.map((line, place) => (
        <div key={place}>{marked.has(line.trim()) ? <mark>{visible(line)}</mark> : visible(line) || "\u00a0"}</div>
      ))}
    </div>
  );
}
