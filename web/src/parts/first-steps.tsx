import { Button, Code, CopyButton, Group, Stack, Text, Title } from "@mantine/core";
import { useTexts } from "../texts/texts";

/** What to do where nothing is yet: each step with its command, or with words. */
export function FirstSteps({ title, words, steps }: { title: string; words: string; steps: [string, string][] }) {
  const texts = useTexts();
  return (
    <Stack p="lg" gap="sm" maw={760}>
      <Title order={2}>{title}</Title>
      <Text>{words}</Text>
      <Stack component="ol" gap="md" m={0} pl="lg">
        {steps.map(([what, command]) => (
          <li key={what}>
            <Text fw={600}>{what}</Text>
            {command.startsWith("forestay") ? (
              <Group gap="xs" mt={4} wrap="nowrap" align="flex-start">
                <Code block tabIndex={0}>
                  {command}
                </Code>
                <CopyButton value={command}>
                  {({ copied, copy }) => (
                    <Button variant="default" size="compact-sm" onClick={copy} mt={4}>
                      {copied ? texts.app.copied : texts.app.copy}
                    </Button>
                  )}
                </CopyButton>
              </Group>
            ) : (
              <Text>{command}</Text>
            )}
          </li>
        ))}
      </Stack>
    </Stack>
  );
}
