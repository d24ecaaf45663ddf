/** Text from outside, shown as the text it is: no markup, no escape codes, no letters that turn the reading order round. */

const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
const HIDDEN = /[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

export function visible(text: string): string {
  return text
    .replace(/\r\n/g, "\n")
    .replace(CONTROL, (one) => {
      const code = one.charCodeAt(0);
      return code < 0x20 ? String.fromCharCode(0x2400 + code) : code === 0x7f ? "\u2421" : `\\x${code.toString(16)}`;
    })
    .replace(HIDDEN, (one) => `\u2039U+${one.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}\u203a`);
}

export function Plain({ text, block = false }: { text: string; block?: boolean }) {
  const shown = visible(text);
  return block ? (
    <div className="plain log" tabIndex={0} role="region" aria-label="text">
      {shown}
    </div>
  ) : (
    <span className="plain">{shown}</span>
  );
}
