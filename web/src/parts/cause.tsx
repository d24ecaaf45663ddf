import { useTexts } from "../texts/texts";
import { visible } from "./plain";

export function useCause(): (cause: string) => [string, string] {
  const texts = useTexts();
  return (cause) => texts.causes[cause] ?? [visible(cause), ""];
}
