import { createContext, use, useEffect, useMemo, useState, type ReactNode } from "react";
import { en, type Texts } from "./en";
import { zh } from "./zh";

const LANGUAGES: Record<string, Texts> = { en, zh };
const KEPT = "forestay-language";

interface Spoken {
  texts: Texts;
  language: string;
  speak(language: string): void;
}

const Words = createContext<Spoken>({ texts: en, language: "en", speak: () => undefined });

function first(): string {
  const kept = localStorage.getItem(KEPT);
  if (kept !== null && kept in LANGUAGES) return kept;
  return navigator.language.startsWith("zh") ? "zh" : "en";
}

export function TextsProvider({ children }: { children: ReactNode }) {
  const [language, setLanguage] = useState(first);
  const spoken = useMemo(
    () => ({
      texts: LANGUAGES[language] ?? en,
      language,
      speak(next: string) {
        localStorage.setItem(KEPT, next);
        setLanguage(next);
      },
    }),
    [language],
  );
  useEffect(() => {
    document.documentElement.lang = spoken.texts.language;
  }, [spoken]);
  return <Words value={spoken}>{children}</Words>;
}

export const useTexts = (): Texts => use(Words).texts;
export const useLanguage = (): Spoken => use(Words);
export const languages = Object.entries(LANGUAGES).map(([id, texts]) => ({ value: id, label: texts.name }));
