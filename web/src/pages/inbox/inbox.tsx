import { Badge, Card, Center, Drawer, Group, Loader, Select, Stack, Text, Title, UnstyledButton } from "@mantine/core";
import { useDocumentTitle, useMediaQuery } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { IconCircleCheck } from "../../parts/icons";
import { useCallback, useMemo, useState } from "react";
import { api, told } from "../../api/client";
import { Ago, hours } from "../../parts/ago";
import { useCause } from "../../parts/cause";
import { FirstSteps } from "../../parts/first-steps";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { Rows, type Column } from "../../parts/rows";
import { useTexts } from "../../texts/texts";
import { GroupPanel } from "./group-panel";
import { groupId, type InboxGroup } from "./inbox-group";

const SHOWN = 100;

/** The error in one line; of a group that was recorded before there were fingerprints why it waits. */
const titleOf = (group: InboxGroup): string => group.title || group.note;

function Owner({ group }: { group: InboxGroup }) {
  const texts = useTexts();
  return <>{group.owner ? visible(group.owner) : texts.inbox.several(group.owners)}</>;
}

/** What a button that opens a group says to those who cannot see its row. */
function useOpenWords(): (group: InboxGroup) => string {
  const texts = useTexts();
  const cause = useCause();
  return useCallback(
    (group) => `${texts.inbox.open(cause(group.cause)[0], group.owner || texts.inbox.several(group.owners))}: ${visible(titleOf(group) || cause(group.cause)[1])}`,
    [texts, cause],
  );
}

function useColumns(open: (group: InboxGroup) => void): Column<InboxGroup>[] {
  const texts = useTexts();
  const cause = useCause();
  const openWords = useOpenWords();
  return useMemo(
    () => [
      {
        id: "error",
        accessorFn: titleOf,
        header: texts.inbox.error,
        cell: ({ row: { original } }) => (
          <>
            <UnstyledButton
              className="open-row clamp"
              fz="sm"
              ff="monospace"
              maw={420}
              aria-haspopup="dialog"
              aria-label={openWords(original)}
              onClick={() => open(original)}
            >
              {visible(titleOf(original) || cause(original.cause)[1])}
            </UnstyledButton>
            {original.group && (
              <Badge color="orange" variant="light" size="sm" c="var(--ink)">
                {texts.inbox.storm}
              </Badge>
            )}
          </>
        ),
      },
      { accessorKey: "cause", header: texts.inbox.cause, cell: ({ row: { original } }) => cause(original.cause)[0] },
      { id: "owner", accessorFn: (one) => one.owner, header: texts.inbox.owner, cell: ({ row }) => <Owner group={row.original} /> },
      {
        accessorKey: "count",
        header: texts.inbox.number,
        meta: { numbers: true },
        cell: ({ row }) => row.original.count.toLocaleString(texts.language),
      },
      {
        accessorKey: "core_hours",
        header: texts.inbox.hours,
        meta: { numbers: true },
        cell: ({ row }) => hours(texts, row.original.core_hours),
      },
      { accessorKey: "oldest", header: texts.inbox.oldest, cell: ({ row }) => <Ago at={row.original.oldest} /> },
      {
        accessorKey: "waits_for",
        header: texts.inbox.waitsFor,
        cell: ({ row }) => texts.inbox.waits[row.original.waits_for] ?? row.original.waits_for,
      },
    ],
    [texts, cause, openWords, open],
  );
}

function Cards({ groups, open }: { groups: InboxGroup[]; open(group: InboxGroup): void }) {
  const texts = useTexts();
  const cause = useCause();
  const openWords = useOpenWords();
  return (
    <Stack gap="xs" component="ul" m={0} p={0}>
      {groups.map((one) => (
        <Card key={groupId(one)} component="li" withBorder p="sm" bg="var(--mantine-color-body)">
          <Group justify="space-between" wrap="nowrap">
            <UnstyledButton className="open-row clamp" fz="sm" ff="monospace" aria-haspopup="dialog" aria-label={openWords(one)} onClick={() => open(one)}>
              {visible(titleOf(one) || cause(one.cause)[1])}
            </UnstyledButton>
            <Text fw={600}>{one.count.toLocaleString(texts.language)}</Text>
          </Group>
          <Text fz="sm" c="dimmed" mt={4}>
            {cause(one.cause)[0]} · <Owner group={one} /> · {hours(texts, one.core_hours)} {texts.inbox.hours.toLowerCase()} · <Ago at={one.oldest} />
          </Text>
        </Card>
      ))}
    </Stack>
  );
}

function Nothing() {
  const texts = useTexts();
  const newest = useQuery({
    queryKey: ["newest-job"],
    queryFn: () => told(api.GET("/v1/jobs", { params: { query: { limit: 1 } } })),
    refetchInterval: (query) => (query.state.data?.jobs.length === 0 ? 5_000 : false),
  });
  if (newest.data === undefined) return null;
  if (newest.data.jobs.length > 0) {
    return (
      <Center p="xl">
        <Stack align="center" gap="xs" maw={440}>
          <IconCircleCheck size={40} stroke={1.3} color="var(--well)" aria-hidden />
          <Title order={2}>{texts.inbox.nothing}</Title>
          <Text ta="center" c="dimmed">
            {texts.inbox.nothingWords}
          </Text>
        </Stack>
      </Center>
    );
  }
  return <FirstSteps title={texts.inbox.first} words={texts.inbox.firstWords} steps={texts.inbox.firstSteps} />;
}

/** The dearest groups, of one cause or owner if they are named; the server counts, and sends no more than is shown. */
function useGroups(cause: string | null, owner: string | null) {
  return useQuery({
    queryKey: ["inbox", cause, owner],
    queryFn: () => told(api.GET("/v1/inbox", { params: { query: { cause: cause ?? "", owner: owner ?? "", limit: SHOWN } } })),
    refetchInterval: 30_000,
    placeholderData: keepPreviousData,
  });
}

export default function Inbox() {
  const texts = useTexts();
  const cause = useCause();
  const narrow = useMediaQuery("(max-width: 48em)");
  const [causeWanted, setCause] = useState<string | null>(null);
  const [ownerWanted, setOwner] = useState<string | null>(null);
  const [opened, setOpened] = useState<InboxGroup | null>(null);
  const whole = useGroups(null, null);
  const chosen = useGroups(causeWanted, ownerWanted);
  const inbox = causeWanted === null && ownerWanted === null ? whole : chosen;
  const groups = inbox.data?.groups ?? [];
  const columns = useColumns(setOpened);
  const count = inbox.data?.count ?? 0;
  const causes = (whole.data?.causes ?? []).map((one) => ({ value: one, label: cause(one)[0] }));
  useDocumentTitle(`${count > 0 ? `(${count.toLocaleString(texts.language)}) ` : ""}${texts.inbox.title} · Forestay`);
  const current = opened === null ? null : (groups.find((one) => groupId(one) === groupId(opened)) ?? opened);
  return (
    <Stack gap="sm" maw={1280}>
      <Group justify="space-between" align="flex-end">
        <div>
          <Title order={1}>{texts.inbox.title}</Title>
          {inbox.data !== undefined && groups.length > 0 && (
            <Text c="dimmed" aria-live="polite">
              {texts.inbox.summary(count, inbox.data.many, hours(texts, inbox.data.core_hours))} {inbox.data.more && texts.inbox.more(groups.length)}
            </Text>
          )}
        </div>
        {whole.data !== undefined && whole.data.many > 0 && (
          <Group gap="xs" grow={narrow} w={narrow ? "100%" : undefined}>
            <Select
              size="xs"
              clearable
              aria-label={texts.inbox.cause}
              placeholder={texts.inbox.anyCause}
              data={causes}
              value={causeWanted}
              onChange={setCause}
            />
            <Select
              size="xs"
              clearable
              searchable
              aria-label={texts.inbox.owner}
              placeholder={texts.inbox.anyOwner}
              data={whole.data.owners}
              value={ownerWanted}
              onChange={setOwner}
            />
          </Group>
        )}
      </Group>
      <ProblemBox problem={inbox.error} />
      {inbox.isPending && <Loader size="sm" aria-label={texts.app.loading} />}
      {whole.data !== undefined && whole.data.many === 0 && (
        <div className="panel">
          <Nothing />
        </div>
      )}
      {groups.length > 0 &&
        (narrow ? (
          <Cards groups={groups} open={setOpened} />
        ) : (
          <div className="panel">
            <Rows caption={texts.inbox.title} columns={columns} rows={groups} idOf={groupId} open={current && groupId(current)} />
          </div>
        ))}
      <Drawer
        opened={current !== null}
        onClose={() => setOpened(null)}
        position="right"
        size={narrow ? "100%" : "lg"}
        title={
          current && (
            <Text component="span" fw={650} fz="lg">
              {cause(current.cause)[0]}: <Owner group={current} />
            </Text>
          )
        }
        closeButtonProps={{ "aria-label": texts.app.close }}
      >
        {current && <GroupPanel group={current} key={groupId(current)} />}
      </Drawer>
    </Stack>
  );
}
