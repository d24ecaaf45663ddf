import { useEffect, useRef, useState } from "react";

/** Hear events of one name from the server, for as long as the page shows. The browser connects again by itself. */
export function useLive(address: string | null, name: string, heard: (data: unknown) => void): boolean {
  const [connected, setConnected] = useState(false);
  const latest = useRef(heard);
  latest.current = heard;
  useEffect(() => {
    if (address === null) return;
    const source = new EventSource(address);
    source.onopen = () => setConnected(true);
    source.onerror = () => setConnected(false);
    const listener = (event: MessageEvent<string>) => {
      setConnected(true);
      latest.current(JSON.parse(event.data));
    };
    source.addEventListener(name, listener);
    return () => source.close();
  }, [address, name]);
  return connected;
}
