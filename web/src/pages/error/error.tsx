import { Anchor, Badge, Button, Grid, Group, Loader, Progress, Stack, Table, Text, Title } from "@mantine/core";
import { useDocumentTitle } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useRef } from "react";
import { Link } from "wouter";
import { api, Problem, told, type Schemas } from "../../api/client";
import type { InboxGroup } from "../../api/inbox-group";
import { useMay } from "../../api/session";
import { Ago } from "../../parts/ago";
import { useCause } from "../../parts/cause";
import { ErrorState } from "../../parts/error-state";
import { IconPencilPlus } from "../../parts/icons";
import { LogLines } from "../../parts/log-lines";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";
import { Approvals } from "./approvals";
import { GroupActs } from "./group-acts";
import { Members } from "./members";
import { Offer } from "./offer";
import { Storm } from "./storm";
import { Teach } from "./teach";
import { Triage } from "./triage";

type Known = Schemas["KnownErrorOut"];
const TAGS = ["host", "site", "owner", "flow", "exit_code"] as const;
const SHOWN = 6;

/** Failures of each of the last hours, as bars. */
function Hours({ error }: { error: Known }) {
  const texts = useTexts();
  const most = Math.max(1, ...error.hours);
  const all = error.hours.reduce((sum, one) => sum + one, 0);
  return (
    <figure style={{ margin: 0 }}>
      <svg viewBox="0 0 240 44" width="100%" height="44" preserveAspectRatio="none" role="img" aria-label={texts.error.lately(all)}>
        <line x1="0" y1="43.5" x2="240" y2="43.5" stroke="var(--line)" />
        {error.hours.map((one, place) => (
          <rect key={place} x={place * 10 + 1} width="8" y={43 - (one / most) * 40} height={(one / most) * 40} fill="var(--chart-5)" />
        ))}
      </svg>
      <Text component="figcaption" fz="sm" c="dimmed">
        {texts.error.lately(all)}
      </Text>
    </figure>
  );
}

/** By how many hosts, owners and so on, the most frequent first. */
function Tags({ error }: { error: Known }) {
  const texts = useTexts();
  return (
    <section aria-labelledby="tags">
      <Title order={2} id="tags">
        {texts.error.where}
      </Title>
      {error.common.map((one) => (
        <Text key={one.tag} fw={600} fz="sm" mt={4}>
          {texts.error.common(texts.error.tags[one.tag] ?? one.tag, visible(one.value), Math.round(one.share * 100), Math.round(one.share_of_others * 100))}
        </Text>
      ))}
      <Table verticalSpacing={3} fz="sm" withRowBorders={false} aria-labelledby="tags">
        <Table.Tbody>
          {TAGS.flatMap((tag) =>
            Object.entries(error.tags[tag] ?? {})
              .slice(0, SHOWN)
              .map(([value, count], place) => (
                <Table.Tr key={`${tag} ${value}`}>
                  <Table.Th scope="row" fw={500} c="dimmed" w={90}>
                    {place === 0 ? texts.error.tags[tag] : ""}
                  </Table.Th>
                  <Table.Td style={{ overflowWrap: "anywhere" }}>{visible(value)}</Table.Td>
                  <Table.Td w={{ base: "20%", sm: "35%" }}>
                    <Progress value={(100 * count) / error.count} aria-label={`${visible(value)}: ${count}`} />
                  </Table.Td>
                  <Table.Td className="numbers" w={70}>
                    {count.toLocaleString(texts.language)}
                  </Table.Td>
                </Table.Tr>
              )),
          )}
        </Table.Tbody>
      </Table>
    </section>
  );
}

function Log({ sample }: { sample: Schemas["SampleOut"] }) {
  const texts = useTexts();
  const words = `${visible(sample.job.slice(0, 8) || sample.incident.slice(0, 8))}${sample.host ? `, ${visible(sample.host)}` : ""}`;
  return (
    <div>
      <Group gap="xs" mb={4}>
        <Anchor component={Link} href={`/incidents/${sample.incident}`} fz="sm">
          {words}
        </Anchor>
        <Text c="dimmed" fz="sm">
          {visible(sample.owner)} · <Ago at={sample.at} />
        </Text>
      </Group>
      {sample.log.length > 0 ? (
        <LogLines lines={sample.log} deciding={sample.deciding} label={`${texts.incident.log}: ${words}`} />
      ) : (
        <Text fz="sm" c="dimmed">
          {texts.incident.noLog}
        </Text>
      )}
    </div>
  );
}

/** A storm stays one group, whatever its failures wait for at this moment. */
const placeOf = (group: InboxGroup): string => group.group || group.waits_for;

/** What waits of it, also what was just answered: who acts on a group sees the end of it. */
function useGroups(fingerprint: string): InboxGroup[] {
  const seen = useRef(new Map<string, InboxGroup>());
  const inbox = useQuery({
    queryKey: ["inbox", "of", fingerprint],
    queryFn: () => told(api.GET("/v1/inbox", { params: { query: { fingerprint, snoozed: "show", limit: 10 } } })),
    refetchInterval: 30_000,
    placeholderData: keepPreviousData,
  });
  for (const group of inbox.data?.groups ?? []) seen.current.set(placeOf(group), group);
  return [...seen.current.values()];
}

function Acts({ group }: { group: InboxGroup }) {
  return (
    <>
      {group.waits_for === "a person" && <GroupActs group={group} />}
      {group.waits_for === "an approval" && <Approvals />}
      {group.group && <Storm group={group} />}
    </>
  );
}

/** One error, which is all failures of one fingerprint: what is known of it, and what can be done. */
export default function KnownError({ fingerprint }: { fingerprint: string }) {
  const texts = useTexts();
  const cause = useCause();
  const author = useMay("rule-author");
  const found = useQuery({
    queryKey: ["error", fingerprint],
    queryFn: () => told(api.GET("/v1/errors/{fingerprint}", { params: { path: { fingerprint } } })),
    refetchInterval: 30_000,
  });
  const groups = useGroups(fingerprint);
  const error = found.data;
  useDocumentTitle(`${error ? visible(error.title) : texts.pages.error} · Forestay`);
  if (found.error instanceof Problem && found.error.status === 422) return <Text>{texts.app.missing}</Text>;
  if (error === undefined) return found.isError ? <ProblemBox problem={found.error} /> : <Loader size="sm" aria-label={texts.app.loading} />;
  const number = (n: number) => n.toLocaleString(texts.language);
  return (
    <Stack gap="md" maw={1280}>
      <div>
        <Anchor component={Link} href="/inbox" fz="sm">
          ← {texts.pages.inbox}
        </Anchor>
        <Title order={1} ff="monospace" fz="lg" style={{ overflowWrap: "anywhere" }}>
          {visible(error.title)}
        </Title>
        <Group gap="xs" mt={4}>
          <ErrorState state={error.state} />
          {groups.some((one) => one.storm) && (
            <Badge color="orange" variant="light" size="sm" c="var(--ink)" tt="none">
              {texts.inbox.storm}
            </Badge>
          )}
          <Text fz="sm" c="dimmed">
            {cause(error.cause)[0]}
            {error.task && <> · {visible(error.task)}</>} · {texts.error.first} <Ago at={error.first_seen} /> · {texts.error.last} <Ago at={error.last_seen} />
          </Text>
        </Group>
        <Text fz="sm" mt={4}>
          {texts.error.counts(number(error.count), number(error.waiting), number(error.recovered), number(error.given_up))}
        </Text>
      </div>
      <Grid gutter="lg">
        <Grid.Col span={{ base: 12, md: 7 }}>
          <Stack gap="md" className="panel" p="md">
            <section aria-labelledby="advice">
              <Title order={2} id="advice">
                {texts.error.advice}
              </Title>
              <Text>{visible(error.words || cause(error.cause)[1])}</Text>
              {error.advice && <Text>{visible(error.advice)}</Text>}
              {error.retry_record && (
                <Text fw={600} fz="sm" mt={4}>
                  {texts.error.record(error.retry_record)}
                </Text>
              )}
            </section>
            <Hours error={error} />
            <Tags error={error} />
            <section aria-labelledby="samples">
              <Title order={2} id="samples" mb={4}>
                {texts.error.samples}
              </Title>
              <Stack gap="sm">
                {error.samples.map((one) => (
                  <Log key={one.incident} sample={one} />
                ))}
              </Stack>
            </section>
          </Stack>
        </Grid.Col>
        <Grid.Col span={{ base: 12, md: 5 }}>
          <Stack gap="md" className="panel" p="md">
            {groups.length === 0 && <Text fz="sm">{texts.error.nothing}</Text>}
            {groups.map((one) => (
              <Acts key={placeOf(one)} group={one} />
            ))}
            {author && (
              <Button
                variant="default"
                component={Link}
                href={`/rules/domain/site?from=${error.newest}`}
                leftSection={<IconPencilPlus size={16} aria-hidden />}
              >
                {texts.incident.write}
              </Button>
            )}
            <Offer fingerprint={fingerprint} />
            <Teach error={error} />
            <Triage error={error} />
            <Members fingerprint={fingerprint} />
          </Stack>
        </Grid.Col>
      </Grid>
    </Stack>
  );
}
