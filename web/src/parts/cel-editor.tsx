import { autocompletion, closeBrackets, completionKeymap, type Completion, type CompletionContext } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { setDiagnostics, type Diagnostic } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import { EditorView, keymap, placeholder } from "@codemirror/view";
import { useEffect, useRef } from "react";
import { nonce } from "../nonce";

export interface Field {
  name: string;
  type: string;
  words: string;
}

export interface Place {
  line: number;
  column: number;
  detail: string;
}

interface Given {
  label: string;
  value: string;
  change(text: string): void;
  fields: Field[];
  problems: Place[];
  hint: string;
}

/** A condition in CEL: what it can ask about is offered, and what is wrong is shown at its place. */
export function CelEditor({ label, value, change, fields, problems, hint }: Given) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>(null);
  const known = useRef(fields);
  known.current = fields;
  const changed = useRef(change);
  changed.current = change;

  useEffect(() => {
    if (host.current === null) return;
    const offer = (asked: CompletionContext) => {
      const word = asked.matchBefore(/[\w.]*/);
      if (word === null || (word.from === word.to && !asked.explicit)) return null;
      const options: Completion[] = known.current.map((one) => ({ label: one.name, type: "variable", detail: one.type, info: one.words }));
      return { from: word.from, options };
    };
    const made = new EditorView({
      parent: host.current,
      state: EditorState.create({
        doc: value,
        extensions: [
          EditorView.cspNonce.of(nonce),
          history(),
          closeBrackets(),
          autocompletion({ override: [offer] }),
          keymap.of([...completionKeymap, ...defaultKeymap, ...historyKeymap]),
          placeholder(hint),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": label, "aria-multiline": "true" }),
          EditorView.theme({
            "&": { color: "var(--ink)" },
            ".cm-content": { fontFamily: "var(--mantine-font-family-monospace)", minHeight: "3.4rem", caretColor: "var(--ink)" },
            ".cm-placeholder": { color: "var(--mantine-color-dimmed)" },
            ".cm-tooltip": { background: "var(--mantine-color-body)", color: "var(--ink)", border: "1px solid var(--line)" },
            ".cm-tooltip-autocomplete ul li[aria-selected]": { background: "var(--lit)", color: "var(--mantine-color-body)" },
          }),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) changed.current(update.state.doc.toString());
          }),
        ],
      }),
    });
    view.current = made;
    return () => {
      made.destroy();
      view.current = null;
    };
    // Made once; what is typed is the editor's own.
  }, [label, hint]);

  useEffect(() => {
    const shown = view.current;
    if (shown === null || shown.state.doc.toString() === value) return;
    shown.dispatch({ changes: { from: 0, to: shown.state.doc.length, insert: value } });
  }, [value]);

  useEffect(() => {
    const shown = view.current;
    if (shown === null) return;
    const { doc } = shown.state;
    const marks: Diagnostic[] = problems.map((one) => {
      const line = doc.line(Math.min(Math.max(1, one.line), doc.lines));
      const from = Math.min(line.from + Math.max(0, one.column - 1), line.to);
      const word = /^[\w.]+/.exec(doc.sliceString(from, line.to))?.[0].length ?? 1;
      return { from, to: Math.min(line.to, from + word), severity: "error", message: one.detail };
    });
    shown.dispatch(setDiagnostics(shown.state, marks));
  }, [problems]);

  return <div ref={host} />;
}
