import { Badge } from "@mantine/core";
import { useTexts } from "../texts/texts";

const COLOURS: Record<string, string> = { new: "blue", regressed: "red", resolved: "green" };

/** Where an error stands, in a word. */
export function ErrorState({ state }: { state: string }) {
  const texts = useTexts();
  return (
    <Badge variant="light" color={COLOURS[state] ?? "gray"} c="var(--ink)" tt="none" size="sm">
      {texts.error.states[state] ?? state}
    </Badge>
  );
}
