import { useEffect, useRef, useState } from "react";

/** The server says something every ten seconds, if only that it is there. */
const SILENT = 35_000;
const AGAIN = 3_000;

export interface Live {
  connected: boolean;
  /** Since when nothing is heard; null: it is, or was not yet. */
  lost: Date | null;
}

/** Hear events of one name from the server, for as long as the page shows. A connection that breaks, is refused or falls silent is tried again. */
export function useLive(address: string | null, name: string, heard: (data: unknown) => void, back?: () => void): Live {
  const [live, setLive] = useState<Live>({ connected: false, lost: null });
  const latest = useRef({ heard, back });
  latest.current = { heard, back };
  useEffect(() => {
    if (address === null) return;
    let source: EventSource | null = null;
    let again: ReturnType<typeof setTimeout> | undefined;
    let last = Date.now();
    let lost: Date | null = null;
    const there = () => {
      last = Date.now();
      setLive({ connected: true, lost: null });
      if (lost !== null) {
        lost = null;
        latest.current.back?.();
      }
    };
    const gone = () => {
      lost ??= new Date(last);
      setLive({ connected: false, lost });
    };
    const open = () => {
      source?.close();
      const made = new EventSource(address);
      source = made;
      made.onopen = there;
      made.onerror = () => {
        gone();
        // A browser connects again by itself, but not after an answer that is an error.
        if (made.readyState === EventSource.CLOSED) again = setTimeout(open, AGAIN);
      };
      made.addEventListener("ping", there);
      made.addEventListener(name, (event: MessageEvent<string>) => {
        there();
        latest.current.heard(JSON.parse(event.data));
      });
    };
    open();
    const watch = setInterval(() => {
      if (Date.now() - last < SILENT || source?.readyState !== EventSource.OPEN) return;
      gone();
      open();
    }, 5_000);
    return () => {
      clearInterval(watch);
      clearTimeout(again);
      source?.close();
    };
  }, [address, name]);
  return live;
}
