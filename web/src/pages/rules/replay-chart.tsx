import { Group, Stack, Table, Text, Title } from "@mantine/core";
import type { Schemas } from "../../api/client";
import { hours } from "../../parts/ago";
import { visible } from "../../parts/plain";
import { useTexts } from "../../texts/texts";

/** What the rule would have changed in the past: each group of incidents as it was answered then, and as it would be. */
export function ReplayChart({ replay }: { replay: Schemas["ReplayOut"] }) {
  const texts = useTexts();
  const most = Math.max(1, ...replay.groups.map((one) => one.count));
  return (
    <section aria-labelledby="replay">
      <Stack gap="xs">
        <Title order={2} id="replay">
          {texts.rules.replay}
        </Title>
        <Group gap="md">
          <Text fz="sm">{texts.rules.replayed(replay.incidents)}</Text>
          <Text fz="sm" fw={600}>
            {texts.rules.differs(replay.differs)}
          </Text>
          <Text fz="sm" c={replay.wrong > 0 ? "var(--bad)" : undefined}>
            {texts.rules.wrong(replay.wrong)}
          </Text>
          <Text fz="sm" c="var(--well)">
            {texts.rules.saved(hours(texts, replay.core_hours_saved))}
          </Text>
          <Text fz="sm">{texts.rules.spent(hours(texts, replay.core_hours_spent))}</Text>
        </Group>
        {replay.groups.length > 0 && (
          <Table fz="sm" verticalSpacing={4} aria-label={texts.rules.replay}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th scope="col">{texts.inbox.cause}</Table.Th>
                <Table.Th scope="col">{texts.rules.before}</Table.Th>
                <Table.Th scope="col">{texts.rules.after}</Table.Th>
                <Table.Th scope="col" w="40%">
                  {texts.inbox.number}
                </Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {replay.groups.map((one) => (
                <Table.Tr key={`${one.by} ${one.cause} ${one.then} ${one.now}`}>
                  <Table.Td>{visible(one.cause)}</Table.Td>
                  <Table.Td>{visible(one.then)}</Table.Td>
                  <Table.Td>{visible(one.now)}</Table.Td>
                  <Table.Td>
                    <Group gap={6} wrap="nowrap">
                      <svg width="70%" height={12} aria-hidden preserveAspectRatio="none" viewBox="0 0 100 12">
                        <rect width={(100 * one.count) / most} height={12} fill="var(--lit)" />
                        <rect width={(100 * one.wrong) / most} height={12} fill="var(--bad)" />
                      </svg>
                      <span>{one.count.toLocaleString(texts.language)}</span>
                    </Group>
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        )}
      </Stack>
    </section>
  );
}
