import { Anchor, Button, Code, Group, Stack, Text, Title } from "@mantine/core";
import { Link } from "wouter";
import type { Schemas } from "../../api/client";
import { useMay, useSession } from "../../api/session";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";
import { useSteering } from "./steering";

/** What does not go on until somebody decides: who can release it, and how. */
export function Held({ run }: { run: Schemas["RunDetailsOut"] }) {
  const texts = useTexts();
  const { subject } = useSession();
  const operator = useMay("operator");
  const submitter = useMay("submitter");
  const steering = useSteering(run.id);
  if (run.waits.length === 0) return null;
  return (
    <Stack gap="xs" className="panel" p="md" component="section" aria-labelledby="held">
      <Title order={2} id="held">
        {texts.runs.held}
      </Title>
      <ProblemBox problem={steering.error} />
      {run.waits.map((one) => (
        <Group key={`${one.task} ${one.holder} ${one.words}`} justify="space-between" gap="xs">
          <div style={{ minWidth: 0 }}>
            <Text fz="sm">
              <b>{visible(one.task || texts.runs.whole)}</b>: {visible(one.words)}
            </Text>
            <Text fz="sm" c="dimmed">
              {texts.runs.canLet(visible(one.who))} {one.command && <Code>{visible(one.command)}</Code>}
            </Text>
          </div>
          {one.incident ? (
            <Anchor component={Link} href={`/incidents/${one.incident}`} fz="sm" underline="always">
              {texts.runs.lookAt}
            </Anchor>
          ) : (
            one.holder &&
            one.command &&
            (operator || (submitter && one.holder === subject)) && (
              <Button size="xs" variant="default" loading={steering.isPending} onClick={() => steering.mutate({ verb: "continue", task: one.task, holder: one.holder })}>
                {one.holder === subject ? texts.runs.goOn : texts.runs.goOnFor(visible(one.holder))}
              </Button>
            )
          )}
        </Group>
      ))}
    </Stack>
  );
}
