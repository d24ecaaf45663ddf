import { Alert, List } from "@mantine/core";
import { IconAlertTriangle } from "./icons";
import { Problem } from "../api/client";
import { useTexts } from "../texts/texts";
import { visible } from "./plain";

/** What went wrong, in the server's words. */
export function ProblemBox({ problem }: { problem: unknown }) {
  const texts = useTexts();
  if (problem === null || problem === undefined) return null;
  const errors = problem instanceof Problem ? problem.errors : [];
  return (
    <Alert role="alert" color="red" variant="outline" icon={<IconAlertTriangle size={18} aria-hidden />} title={texts.app.problem}>
      {visible(problem instanceof Error ? problem.message : String(problem))}
      {errors.length > 0 && (
        <List size="sm" mt="xs">
          {errors.map((one) => (
            <List.Item key={`${one.at} ${one.detail}`}>
              {visible(one.at)}: {visible(one.detail)}
            </List.Item>
          ))}
        </List>
      )}
    </Alert>
  );
}
